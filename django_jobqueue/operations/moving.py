"""Draining a queue from one connection into another: into a faster store, or out of one that is given up.

Each page is pushed to its new place before it leaves the old one. A crash in between leaves jobs in both, and the same
command once more clears that up: no job is lost, and one may run twice where workers serve the queue meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dispatching.discovery import load_handlers
from ..drivers import Driver, connections
from ..exceptions import InvalidConnection
from ..jobs.chunks import cut, job_bytes
from ..jobs.flows import moved
from ..jobs.records import SCHEDULED, JobRecord, NewJob, QueueSize
from ..jobs.registry import registry

# Small, since a crash leaves so many jobs in both places.
PAGE = 100


@dataclass(frozen=True, slots=True)
class Moved:
    """How many jobs were moved, and how many a worker has taken at the old place, where they end."""

    moved: int
    reserved: int


def move(queue: str, *, source: str, target: str) -> Moved:
    """Move the jobs of a queue that wait now; raises InvalidConnection when there are not two connections.

    They keep id, priority, due time, metadata and what follows them. Their attempts are counted anew, as after a retry.
    Raises InvalidConnection at the first member of a batch, which cannot leave its connection.
    """
    if source == target:
        raise InvalidConnection(f"The queue {queue!r} is on the connection {source!r} already; name another one.")
    old, new = connections[source], connections[target]
    load_handlers()
    left = old.sizes().get(queue, QueueSize()).waiting
    total = 0
    while left > 0:
        page = old.waiting(queue, limit=min(PAGE, left))
        count = _move_page(page, old, new)
        if not count:
            break  # nothing waits any more, or workers take it all
        total += count
        left -= len(page)
    return Moved(total, old.sizes().get(queue, QueueSize()).reserved)


def _move_page(page: list[JobRecord], old: Driver, new: Driver) -> int:
    for record in page:
        definition = registry.find(record.name)
        if definition is not None and definition.atomic and not new.supports_transactions:
            raise InvalidConnection(
                f"The job {record.id} ({record.name}) is atomic, and the connection {new.alias!r} is no database that "
                "its transaction could include; it stays. Drop atomic=True, or move the queue to a database."
            )
        if record.batch is not None:
            raise InvalidConnection(
                f"The job {record.id} is a member of the batch {record.batch}, which lives on the connection "
                f"{old.alias!r}; let the workers there end it, or cancel the batch, before the queue is moved."
            )
    count = 0
    for chunk in cut([_as_new(record, old.alias, new.alias) for record in page], job_bytes):
        stored = new.push(chunk)
        for job in chunk:
            if old.cancel(job.id) is not None:
                count += 1
            elif job.id in stored:
                new.cancel(job.id)  # a worker was faster, and runs it
    return count


def _as_new(record: JobRecord, source: str, target: str) -> NewJob:
    definition = registry.find(record.name)
    return NewJob(
        id=record.id,
        name=record.name,
        queue=record.queue,
        payload=record.payload,
        format=record.format,
        rank=-record.priority,
        max_attempts=record.max_attempts,
        retry_for=None if definition is None else definition.retry_until,
        available_at=record.available_at if record.state == SCHEDULED else None,
        metadata=record.metadata,
        masked=record.masked,
        flow=moved(record.flow, record.queue, source, target),
    )
