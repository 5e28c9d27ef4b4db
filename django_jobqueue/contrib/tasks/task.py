"""The class of tasks: Django's own, with retries and a time limit, under the names that Django's proposals have.

``@task(max_attempts=5)`` reaches it on Django 6.1 and through the backport. ``@task`` of Django 6.0 takes no further
arguments; there ``OPTIONS`` says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ...exceptions import InvalidOption
from ...jobs.definition import UNSET, check_count, check_timeout
from ...jobs.retry import check_backoff
from .compat import AnyTask, InvalidTask, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueueTask(AnyTask):
    """``max_attempts``, ``backoff`` and ``timeout`` (seconds per attempt) are those of ``@job``.

    Not given, they are as OPTIONS of the backend, else the JOBQUEUE setting, says. ``run_after`` may be a timedelta,
    from now on, as Django's documentation has it. Raises InvalidTask.
    """

    max_attempts: int | None = None
    backoff: Any = None
    timeout: Any = UNSET

    def __post_init__(self) -> None:
        try:
            if self.max_attempts is not None:
                check_count("max_attempts", self.max_attempts)
            if self.backoff is not None:
                # As a tuple where it was a list: a task is hashed by its fields.
                object.__setattr__(self, "backoff", check_backoff("backoff", self.backoff))
            object.__setattr__(self, "timeout", check_timeout("timeout", self.timeout))
        except InvalidOption as error:
            raise InvalidTask(f"@task on {getattr(self.func, '__qualname__', self.func)!r}: {error}") from None
        run_after: Any = self.run_after
        if isinstance(run_after, timedelta):
            object.__setattr__(self, "run_after", _moment_in(run_after))
        Task.__post_init__(self)  # no super(), which a class with slots, being made twice, does not find


def _moment_in(delay: timedelta) -> datetime:
    try:
        return timezone.now() + delay
    except OverflowError:
        raise InvalidTask(f"run_after={delay!r} from now on is no date.") from None
