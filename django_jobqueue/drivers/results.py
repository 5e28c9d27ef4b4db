"""Results in the database, for every driver that has one: keeping, finding, pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from ..jobs.records import CANCELLED, AttemptHistory, NewResult, Reservation, ResultRecord
from ..jobs.times import microseconds
from ..models import Job, Result
from ..models.fields import store_clock
from .pruning import delete_first

# Of a result that is there already: a job may have been stored again after an unclear commit. Its last end counts.
_CHANGING = [field.name for field in Result._meta.fields if not field.primary_key]


class Results:
    """The rows of one connection in the Result table of ``database``."""

    def __init__(self, connection: str, database: str) -> None:
        self.connection = connection
        self.database = database

    @property
    def _rows(self) -> QuerySet[Result]:
        return Result.objects.using(self.database).filter(connection=self.connection)

    def add(self, ended: Sequence[tuple[Reservation, NewResult, str]], now: datetime | None) -> None:
        """Keep what jobs returned, each with the stored history of its errors; in the caller's transaction."""
        self._store([self._row(*item, now) for item in ended])

    def add_cancelled(self, jobs: Sequence[tuple[Job, float]], now: datetime | None) -> None:
        """Keep that jobs were cancelled, each for so many seconds; in the caller's transaction."""
        self._store([self._cancelled(job, keep_for, now) for job, keep_for in jobs])

    def _store(self, rows: list[Result]) -> None:
        targets = connections[self.database].features.supports_update_conflicts_with_target
        Result.objects.using(self.database).bulk_create(
            rows,
            update_conflicts=True,
            update_fields=_CHANGING,
            unique_fields=["job_id"] if targets else None,
        )

    def _row(self, held: Reservation, result: NewResult, errors: str, now: datetime | None) -> Result:
        expires_at: Any = store_clock(now, microseconds(result.keep_for))
        return Result(
            job_id=held.id,
            connection=self.connection,
            queue=held.queue,
            name=held.name,
            value=result.value,
            error=result.error,
            attempts=held.attempt,
            max_attempts=held.max_attempts,
            created_at=held.created_at,  # type: ignore[misc]
            started_at=result.started_at,
            finished_at=result.finished_at,
            expires_at=expires_at,
            errors=errors,
            metadata=held.metadata,
            worker=held.worker,
            payload=held.payload,
            format=held.format,
            rank=held.rank,
            masked=held.masked,
        )

    def _cancelled(self, job: Job, keep_for: float, now: datetime | None) -> Result:
        moment: Any = store_clock(now)
        expires_at: Any = store_clock(now, microseconds(keep_for))
        return Result(
            job_id=job.id,
            connection=self.connection,
            queue=job.queue,
            name=job.name,
            state=CANCELLED,
            value="",
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            created_at=job.created_at,
            finished_at=moment,
            expires_at=expires_at,
            errors=job.errors,
            metadata=job.metadata,
            worker="",
            payload=job.payload,
            format=job.format,
            rank=job.rank,
            masked=job.masked,
        )

    def get(self, job_id: UUID, now: datetime | None) -> ResultRecord | None:
        row = self._rows.filter(job_id=job_id, expires_at__gt=store_clock(now)).first()
        if row is None:
            return None
        return ResultRecord(
            id=row.job_id,
            connection=row.connection,
            queue=row.queue,
            name=row.name,
            value=row.value,
            error=row.error,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            errors=AttemptHistory.read(row.errors),
            metadata=row.metadata,
            worker=row.worker,
            payload=row.payload,
            format=row.format,
            priority=-row.rank,
            masked=row.masked,
            state=row.state,
        )

    def prune(self, limit: int, now: datetime | None) -> int:
        """Delete at most ``limit`` expired rows, of whatever connection; rows that another pruner holds are skipped."""
        expired = Result.objects.using(self.database).filter(expires_at__lte=store_clock(now))
        return delete_first(expired.order_by("expires_at"), limit)
