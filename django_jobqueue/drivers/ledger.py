"""What a database keeps beside the jobs: who works, what was asked of all who do, what was done; and what is old.

Nothing of it decides about a job. A worker that cannot write here works on, and rescue does not look here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import DatabaseError, IntegrityError, InterfaceError, connections, transaction
from django.db.models import QuerySet

from ..jobs.counts import Count, Counted, CountKey
from ..jobs.times import microseconds
from ..jobs.workers import Wish, WorkerRecord, WorkerReport
from ..models import Worker, WorkerRequest
from ..models.fields import store_clock
from . import counting, pruning
from .transactions import repeating


class Ledger:
    """The tables of one database, which all queue connections there share."""

    #: What its methods raise when the database is out of reach, or lacks the tables.
    outages: ClassVar[tuple[type[BaseException], ...]] = (DatabaseError, InterfaceError)

    def __init__(self, database: str) -> None:
        self.database = database

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is in a transaction there, so that no other thread sees what it does."""
        return connections[self.database].in_atomic_block

    @property
    def _workers(self) -> QuerySet[Worker]:
        return Worker.objects.using(self.database)

    def beat(self, report: WorkerReport, *, now: datetime | None = None) -> None:
        """Store what a worker process says, as of now; one whose row is gone gets it back."""
        values: dict[str, Any] = {
            "processed": report.processed,
            "released": report.released,
            "failed": report.failed,
            "lost": report.lost,
            "memory": report.memory,
            "heartbeat_at": store_clock(now),
        }
        row = self._workers.filter(id=report.id)
        if not repeating(self.database, lambda: row.update(**values)):
            self._workers.create(
                id=report.id,
                name=report.name,
                host=report.host,
                pid=report.pid,
                queues=",".join(report.queues),
                workers=report.workers,
                version=report.version,
                is_embedded=report.is_embedded,
                started_at=store_clock(now, -microseconds(report.ran)),
                **values,
            )

    def leave(self, worker_id: UUID) -> None:
        """A worker process stops."""
        repeating(self.database, self._workers.filter(id=worker_id).delete)

    def workers(self, *, now: datetime | None = None) -> list[WorkerRecord]:
        """Every worker process that is known, by name and then by start."""
        rows = self._workers.annotate(_now=store_clock(now)).order_by("name", "started_at", "id")
        return [_record(row) for row in rows]

    def ask(self, name: str, *, now: datetime | None = None) -> None:
        """Ask something of all worker processes that have started by now."""
        row = WorkerRequest.objects.using(self.database).filter(name=name)

        def move_on() -> int:
            return row.update(asked_at=store_clock(now))

        if not repeating(self.database, move_on):
            try:
                with transaction.atomic(using=self.database):
                    row.create(name=name, asked_at=store_clock(now))
            except IntegrityError:  # somebody else asked it for the first time just now
                repeating(self.database, move_on)

    def asked(self, name: str, *, now: datetime | None = None) -> Wish | None:
        """When something was last asked; None when it never was."""
        row = WorkerRequest.objects.using(self.database).filter(name=name).annotate(_now=store_clock(now))
        found: Any = repeating(self.database, lambda: list(row.values_list("asked_at", "_now")))
        if not found:
            return None
        ((asked_at, moment),) = found
        return Wish(asked_at=asked_at, ago=(moment - asked_at).total_seconds())

    def count(self, counts: Mapping[CountKey, Count]) -> None:
        """Add to the counts of runs, all or nothing."""
        counting.add(self.database, counts)

    def total(self, since: float, connection: str | None = None, *, now: datetime | None = None) -> list[Counted]:
        """The counts of the last ``since`` seconds, in whole minutes or hours, of all connections or of one."""
        return counting.total(self.database, since, connection, now=now)

    def roll_up(self, limit: int, *, now: datetime | None = None) -> int:
        """Make at most ``limit`` old minutes of counts part of their hours; return how many."""
        return counting.roll_up(self.database, limit, now)

    def prune(self, what: str, age: float, *, limit: int, now: datetime | None = None) -> int:
        """Delete rows of one kind that are older than ``age`` seconds, at most ``limit``; return how many."""
        return pruning.prune(self.database, what, age, limit=limit, now=now)

    def count_old(self, what: str, age: float, *, now: datetime | None = None) -> int:
        """How many rows of one kind are older than ``age`` seconds."""
        return pruning.count_old(self.database, what, age, now=now)


def _record(row: Any) -> WorkerRecord:
    return WorkerRecord(
        id=row.id,
        name=row.name,
        host=row.host,
        pid=row.pid,
        queues=tuple(row.queues.split(",")),
        workers=row.workers,
        version=row.version,
        is_embedded=row.is_embedded,
        ran=(row.heartbeat_at - row.started_at).total_seconds(),
        processed=row.processed,
        released=row.released,
        failed=row.failed,
        lost=row.lost,
        memory=row.memory,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        silence=max(0.0, (row._now - row.heartbeat_at).total_seconds()),
    )
