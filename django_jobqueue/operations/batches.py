"""One batch by its id: how far it is, adding to it, cancelling it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ..dispatching.batches import add_to_batch, close
from ..dispatching.chains import Chain
from ..dispatching.handler import Call
from ..drivers import connections
from ..drivers.base import CANCEL_LIMIT
from ..jobs.records import BatchRecord
from .keeping import keep_for_all
from .lookup import read_metadata, to_uuid


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch as it was when it was read.

    ``state`` is "running", "cancelled" or "finished". Each of ``total`` jobs is ``done``, ``failed``, ``cancelled`` or
    ``pending``; a chain counts as one.
    """

    id: UUID
    name: str
    connection: str
    state: str
    total: int
    done: int
    failed: int
    cancelled: int
    pending: int
    allow_failures: bool
    metadata: dict[str, Any]
    created_at: datetime
    finished_at: datetime | None

    @property
    def percent(self) -> int:
        """How many of a hundred have ended, however they did; 100 only when all have."""
        return 100 if not self.pending else (self.total - self.pending) * 100 // self.total

    def add(self, calls: Iterable[Call | Chain]) -> list[UUID]:
        """Dispatch more jobs as members of this batch; return their ids.

        Raises JobQueueError when the batch has ended or was cancelled. It has not while a member runs, so that a job
        can always add to its own.
        """
        return add_to_batch(self.connection, self.id, self.name, calls)

    def cancel(self) -> int:
        """Remove the members that wait, and let none be added; return how many were removed.

        Those that run end as they do; what they leave waiting, for another attempt for example, is removed soon.
        """
        driver = connections[self.connection]
        kept = keep_for_all()
        removed = step = driver.cancel_batch(self.id, keep_for=kept)
        while step == CANCEL_LIMIT:
            step = driver.cancel_batch(self.id, keep_for=kept)
            removed += step
        close(driver, self.id)
        return removed


def get_batch(id: UUID | str, connection: str | None = None) -> FoundBatch | None:
    """The batch of an id; None when there is none, or it ended longer ago than batches are kept.

    ``connection`` names the one to look in; otherwise each is asked, in the order of the setting.
    """
    batch_id = to_uuid(id)
    drivers = connections.all() if connection is None else [connections[connection]]
    for driver in drivers:
        record = driver.get_batch(batch_id)
        if record is not None:
            return _found(record)
    return None


def _found(record: BatchRecord) -> FoundBatch:
    state = "cancelled" if record.cancelled_at else "finished" if record.finished_at else "running"
    return FoundBatch(
        id=record.id,
        name=record.name,
        connection=record.connection,
        state=state,
        total=record.total,
        done=record.done,
        failed=record.failed,
        cancelled=record.cancelled,
        pending=record.pending,
        allow_failures=record.allow_failures,
        metadata=read_metadata(record.metadata),
        created_at=record.created_at,
        finished_at=record.finished_at,
    )
