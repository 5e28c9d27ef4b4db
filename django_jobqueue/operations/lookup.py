"""One job by its id, wherever it is, and waiting for its end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..dispatching.batches import close
from ..drivers import Driver, connections
from ..exceptions import InvalidOption, JobQueueError
from ..jobs.payloads import decode_metadata, decode_result
from ..jobs.records import CANCELLED, FAILED, PROCESSED, AttemptRecord, JobRecord, ResultRecord
from ..jobs.times import seconds
from ..signals import job_cancelled
from .keeping import keep_for_all
from .reports import last_reports, note_removed

# Most jobs that somebody waits for end soon; one that takes long is not asked about more often than a second.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
WAS_CANCELLED = "The job was cancelled before it came to an end."


@dataclass(frozen=True, slots=True)
class Progress:
    """The last that a job said of how far it is; ``percent`` is None when it did not know."""

    percent: int | None
    stage: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as it was when it was read.

    ``state`` is "scheduled", "ready", "reserved", "blocked", "failed" for a dead letter, and for one that keeps its
    result "processed" or "cancelled". ``errors`` are the last failed attempts, the oldest first. ``result`` is what the
    handler returned, None where ``result_error`` says why there is none.
    """

    id: UUID
    name: str
    queue: str
    connection: str
    state: str
    attempts: int
    max_attempts: int | None
    errors: tuple[AttemptRecord, ...]
    metadata: dict[str, Any]
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: Any = None
    result_error: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in {PROCESSED, FAILED, CANCELLED}

    @property
    def progress(self) -> Progress | None:
        """How far the job is, read now; None when it never said. It may be a second old."""
        record = last_reports(connections[self.connection], [self.id]).get(self.id)
        if record is None:
            return None
        return Progress(100 if self.state == PROCESSED else record.percent, record.stage, record.updated_at)

    def cancel(self) -> bool:
        """Remove the job from its queue; False when it is running, or gone.

        One that keeps its result is found as "cancelled" for as long.
        """
        return cancel(self.id, connection=self.connection)

    def wait(self, timeout: float | timedelta) -> FoundJob | None:
        """The job at its end, "processed", "failed" or "cancelled"; None when it is gone, and kept no result.

        Raises TimeoutError when that takes longer than ``timeout`` seconds, and JobQueueError inside a transaction of
        the job's database, in which the end might never be seen.
        """
        return _wait(self, seconds("timeout", timeout))


def get_job(id: UUID | str, connection: str | None = None) -> FoundJob | None:
    """The job, dead letter or kept result of an id; None when it is gone, or never was.

    ``connection`` names the one to look in; otherwise each is asked, in the order of the setting.
    """
    record = find_record(to_uuid(id), connection)
    return None if record is None else _found(record)


def find_record(job_id: UUID, connection: str | None = None) -> JobRecord | ResultRecord | None:
    """All that the store holds of an id, with its payload; looks where ``get_job`` does."""
    drivers = connections.all() if connection is None else [connections[connection]]
    for driver in drivers:
        record = _look(driver, job_id)
        if record is not None:
            return record
    return None


def _look(driver: Driver, job_id: UUID) -> JobRecord | ResultRecord | None:
    """Jobs are asked twice: between the look at them and that at the dead letters, a retry may have moved it."""
    return driver.get(job_id) or driver.get_result(job_id) or driver.get(job_id)


def _found(record: JobRecord | ResultRecord) -> FoundJob:
    return _of_result(record) if isinstance(record, ResultRecord) else _of_job(record)


def _wait(job: FoundJob, timeout: float) -> FoundJob | None:
    driver = connections[job.connection]
    if driver.in_transaction():
        raise JobQueueError(
            f"wait() for the job {job.id} is called inside a transaction of its database {driver.database!r}, which "
            "may never see the job end, and may be what keeps it from starting. Call it after the commit."
        )
    ends_at = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        record = _look(driver, job.id)
        found = None if record is None else _found(record)
        if found is None or found.has_ended:
            return found
        left = ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"The job {job.name!r} {job.id} is still {found.state} after {timeout:g} s.")
        time.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST_PAUSE)


def cancel(job_id: UUID, *, connection: str) -> bool:
    """Remove a job that has not started; False when there is none, or it is reserved."""
    driver = connections[connection]
    record = driver.cancel(job_id, keep_for=keep_for_all())
    if record is None:
        return False
    note_removed(driver, [job_id], CANCELLED)
    driver.send(job_cancelled, id=record.id, name=record.name, queue=record.queue)
    if record.batch is not None:
        close(driver, record.batch)
    return True


def _of_job(record: JobRecord) -> FoundJob:
    return FoundJob(
        id=record.id,
        name=record.name,
        queue=record.queue,
        connection=record.connection,
        state=record.state,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        errors=record.errors.last,
        metadata=read_metadata(record.metadata),
        created_at=record.created_at,
        started_at=record.reserved_at,
        finished_at=record.failed_at,
    )


def _of_result(record: ResultRecord) -> FoundJob:
    value, error = None, WAS_CANCELLED if record.state == CANCELLED else record.error
    if not error:
        try:
            value = decode_result(record.value)
        except ValueError as unreadable:
            error = str(unreadable)
    return FoundJob(
        id=record.id,
        name=record.name,
        queue=record.queue,
        connection=record.connection,
        state=record.state,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        errors=record.errors.last,
        metadata=read_metadata(record.metadata),
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        result=value,
        result_error=error,
    )


def read_metadata(text: str) -> dict[str, Any]:
    """Stored metadata, empty when it cannot be read."""
    try:
        return decode_metadata(text)
    except ValueError:
        return {}


def to_uuid(value: UUID | str) -> UUID:
    """An id that may be given as text; raises InvalidOption."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(f"{value!r} is no job id; pass the UUID that dispatch returned.") from None
