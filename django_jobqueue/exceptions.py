"""Every error that this package raises on purpose; each message names the thing, the value and the cure."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured


class JobQueueError(Exception):
    """The root of all errors of django_jobqueue."""


class UnknownJob(JobQueueError, LookupError):
    """No handler is registered under a name, so nothing would ever run the job."""


class InvalidPayload(JobQueueError, TypeError, ValueError):
    """A job's arguments do not fit the handler, or cannot be carried exactly; nothing was stored."""


class InvalidOption(JobQueueError, ValueError):
    """An option of ``@job``, ``using`` or a command has a value that cannot work."""


class InvalidConnection(JobQueueError, ImproperlyConfigured):
    """A queue connection is not configured, or not configured in a way that can work."""


class JobTimeout(JobQueueError):
    """An attempt took longer than the job's timeout."""


class JobCancelled(JobQueueError):
    """Somebody cancelled a job; never raised, but the error that is shown of one that kept its result."""


class ReservationLost(JobQueueError):
    """A worker settles, or starts, a job whose reservation is no longer its own."""


class AlreadyRetried(JobQueueError):
    """A dead letter is gone: somebody else retried or forgot it first."""
