"""What a running job sees of itself: the JobContext, and ``current_job()`` anywhere below the handler.

It touches memory only: what must reach the store is written by the worker's keeper thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

from ..exceptions import InvalidOption
from .errors import storable
from .payloads import FORMAT, decode, decode_metadata
from .times import seconds

MAX_STAGE = 200


class JobControl(BaseException):
    """A handler's request about its own job; no ordinary ``except Exception`` swallows it."""


class ReleaseRequest(JobControl):
    def __init__(self, delay: float) -> None:
        super().__init__(f"release in {delay} s")
        self.delay = delay


class FailedByHandler(JobControl):
    """Raised by ``JobContext.fail``: the job becomes a dead letter whatever attempts are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The running job.

    ``attempt`` counts from 1. ``batch_id`` is that of the batch of which it is a member, or None. ``deadline`` is when
    this attempt times out, by the store's clock, or None without a limit.
    """

    id: UUID
    name: str
    queue: str
    attempt: int
    max_attempts: int
    connection: str
    started_at: datetime
    timeout: float | None = None
    batch_id: UUID | None = None
    reported: Callable[[int | None, str], None] = field(default=lambda percent, stage: None, repr=False)
    stop_asked: Callable[[], bool] = field(default=lambda: False, repr=False)
    stored_payload: str = field(default="{}", repr=False)
    stored_metadata: str = field(default="", repr=False)
    format: int = FORMAT
    _started: float = field(default_factory=time.monotonic, repr=False)

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments as they were dispatched: ``{"args": [...], "kwargs": {...}}``, a new copy each time."""
        args, kwargs = decode(self.stored_payload, self.format)
        return {"args": args, "kwargs": kwargs}

    @property
    def metadata(self) -> dict[str, Any]:
        """What ``using(metadata=...)`` was given, a new copy each time."""
        return decode_metadata(self.stored_metadata)

    @property
    def deadline(self) -> datetime | None:
        return None if self.timeout is None else self.started_at + timedelta(seconds=self.timeout)

    def remaining(self) -> float | None:
        """Seconds until the deadline, 0 when it has passed, None without a limit."""
        if self.timeout is None:
            return None
        return max(0.0, self._started + self.timeout - time.monotonic())

    def should_stop(self) -> bool:
        """Whether the worker is stopping, or the job's reservation was lost: finish soon, or release."""
        return self.stop_asked()

    def progress(self, percent: float | None = None, stage: str = "") -> None:
        """Say how far this job is: 0 to 100, None when nobody knows, and a few words, cut to 200 characters.

        It touches memory only; the worker stores the last that was said, within a second. Raises InvalidOption.
        """
        if not isinstance(stage, str):
            raise InvalidOption(f"progress() takes the stage as a string, not {stage!r}.")
        self.reported(_percent(percent), storable(stage)[:MAX_STAGE])

    def release(self, delay: float | timedelta = 0) -> NoReturn:
        """Put this job back, to run again after ``delay`` seconds; no attempt is spent. Does not return."""
        raise ReleaseRequest(seconds("delay", delay))

    def fail(self, reason: str) -> NoReturn:
        """Make this job a dead letter now, whatever attempts are left. Does not return."""
        if not isinstance(reason, str):
            raise InvalidOption(f"fail() takes the reason as a string, not {reason!r}.")
        raise FailedByHandler(reason)


def _percent(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise InvalidOption(f"progress() takes a percentage from 0 to 100, or None, not {value!r}.")
    return int(value)


class RunningJob(Protocol):
    """What knows the context of the running job; most handlers never ask for it, so it is made when they do."""

    @property
    def context(self) -> JobContext: ...


running_job: ContextVar[RunningJob | None] = ContextVar("django_jobqueue_running_job", default=None)


def current_job() -> JobContext | None:
    """The job that runs in this thread or task, or None outside of one."""
    running = running_job.get()
    return None if running is None else running.context
