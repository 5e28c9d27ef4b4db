"""One job by its id, wherever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..drivers import Driver, connections
from ..exceptions import InvalidOption
from ..jobs.payloads import decode_metadata
from ..jobs.records import AttemptRecord, JobRecord
from ..signals import job_cancelled


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as it was when it was read.

    ``state`` is "scheduled", "ready", "reserved", "blocked", or "failed" for a dead letter; ``errors`` are the
    last failed attempts, the oldest first.
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

    def cancel(self) -> bool:
        """Remove the job from its queue; False when it is running, or gone."""
        return cancel(self.id, connection=self.connection)


def get_job(id: UUID | str, connection: str | None = None) -> FoundJob | None:
    """The job, or dead letter, of an id; None when it is gone, or never was.

    ``connection`` names the one to look in; otherwise each is asked, in the order of the setting.
    """
    job_id = _to_uuid(id)
    drivers = connections.all() if connection is None else [connections[connection]]
    for driver in drivers:
        # Asked twice: between the table of jobs and that of dead letters, a retry may have moved it.
        record = driver.get(job_id) or driver.get(job_id)
        if record is not None:
            return _found(record)
    return None


def cancel(job_id: UUID, *, connection: str) -> bool:
    """Remove a job that has not started; False when there is none, or it is reserved."""
    driver = connections[connection]
    record = driver.cancel(job_id)
    if record is None:
        return False
    _announce(driver, record)
    return True


def _announce(driver: Driver, record: JobRecord) -> None:
    job_cancelled.send_robust(
        type(driver), id=record.id, name=record.name, queue=record.queue, connection=record.connection
    )


def _found(record: JobRecord) -> FoundJob:
    try:
        metadata = decode_metadata(record.metadata)
    except ValueError:
        metadata = {}
    return FoundJob(
        id=record.id,
        name=record.name,
        queue=record.queue,
        connection=record.connection,
        state=record.state,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        errors=record.errors.last,
        metadata=metadata,
    )


def _to_uuid(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(f"{value!r} is no job id; pass the UUID that dispatch returned.") from None
