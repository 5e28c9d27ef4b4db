"""Results in the database, for every driver that has one: keeping, finding, pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet
from django.db.models.constants import OnConflict

from ..jobs.chunks import cut
from ..jobs.records import CANCELLED, PROCESSED, AttemptHistory, NewResult, Reservation, ResultRecord
from ..jobs.times import microseconds, to_microseconds
from ..models import Job, Result
from ..models.fields import clock_sql, store_clock, uuid_parameter
from .inserts import copy_rows
from .pruning import delete_first


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
        connection = connections[self.database]
        vendor, quoted = connection.vendor, connection.ops.quote_name
        clock = clock_sql(vendor, now)
        rows = [self._row(*item, vendor) for item in ended]
        columns = list(rows[0])
        places = ", ".join(f"{clock} + %s" if column == "expires_at" else "%s" for column in columns)
        # A job may have been stored again after an unclear commit: its last end counts.
        others = [column for column in columns if column != "job_id"]
        replacing = connection.ops.on_conflict_suffix_sql([], OnConflict.UPDATE, others, ["job_id"])
        with connection.cursor() as cursor:
            for chunk in cut(rows, _size):
                cursor.execute(
                    f"INSERT INTO django_jobqueue_result ({', '.join(map(quoted, columns))}) "  # noqa: S608
                    f"VALUES {', '.join([f'({places})'] * len(chunk))} {replacing}",
                    [value for row in chunk for value in row.values()],
                )

    def add_cancelled(self, job_ids: Sequence[UUID], keep_for: float, now: datetime | None) -> None:
        """Keep for so many seconds that jobs are cancelled, whose rows are still there; in the caller's transaction.

        The database copies what it has already: each may have a megabyte of arguments.
        """
        results = Result.objects.using(self.database)
        # Of jobs that were stored again. Most have none: to delete nothing would lock what others are about to insert.
        before = list(results.filter(job_id__in=job_ids).values_list("job_id", flat=True))
        if before:
            results.filter(job_id__in=before).delete()
        vendor = connections[self.database].vendor
        clock = clock_sql(vendor, now)
        given = {
            "job_id": "id",
            "connection": "%s",
            "state": f"'{CANCELLED}'",
            "value": "''",
            "error": "''",
            "worker": "''",
            "started_at": "NULL",
            "finished_at": clock,
            "expires_at": f"{clock} + %s",
        }
        params = [self.connection, microseconds(keep_for)]
        copy_rows(self.database, Job, Result, given, params, [uuid_parameter(job_id, vendor) for job_id in job_ids])

    def _row(self, held: Reservation, result: NewResult, errors: str, vendor: str) -> dict[str, Any]:
        """The parameters of a row; of ``expires_at`` how long it is from now."""
        return {
            "job_id": uuid_parameter(held.id, vendor),
            "connection": self.connection,
            "queue": held.queue,
            "name": held.name,
            "state": PROCESSED,
            "value": result.value,
            "error": result.error,
            "attempts": held.attempt,
            "max_attempts": held.max_attempts,
            "created_at": to_microseconds(held.created_at),
            "started_at": to_microseconds(result.started_at),
            "finished_at": to_microseconds(result.finished_at),
            "expires_at": microseconds(result.keep_for),
            "errors": errors,
            "metadata": held.metadata,
            "worker": held.worker,
            "payload": held.payload,
            "format": held.format,
            "rank": held.rank,
            "masked": held.masked,
        }

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


def _size(row: dict[str, Any]) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, str))
