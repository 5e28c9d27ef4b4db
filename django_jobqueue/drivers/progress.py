"""Progress in the database: the last report of each job, written by whoever still holds the job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from ..jobs.records import ProgressRecord, Report
from ..jobs.times import microseconds
from ..models import Job, Progress
from ..models.fields import store_clock
from .pruning import delete_first
from .transactions import own_transaction, repeating


class ProgressRows:
    """The rows of one connection in the Progress table of ``database``."""

    def __init__(self, connection: str, database: str) -> None:
        self.connection = connection
        self.database = database

    @property
    def _rows(self) -> QuerySet[Progress]:
        return Progress.objects.using(self.database).filter(connection=self.connection)

    def write(self, reports: Sequence[Report], now: datetime | None) -> None:
        def save() -> None:
            with own_transaction(self.database):
                rows = [self._row(report, now) for report in reports if self._is_held(report)]
                targets = connections[self.database].features.supports_update_conflicts_with_target
                Progress.objects.using(self.database).bulk_create(
                    rows,
                    update_conflicts=True,
                    update_fields=["connection", "percent", "stage", "updated_at"],
                    unique_fields=["job_id"] if targets else None,
                )

        repeating(self.database, save)

    def _is_held(self, report: Report) -> bool:
        if report.token is None:
            return True
        return Job.objects.using(self.database).filter(id=report.id, token=report.token).exists()

    def _row(self, report: Report, now: datetime | None) -> Progress:
        updated_at: Any = store_clock(now)
        return Progress(
            job_id=report.id,
            connection=self.connection,
            percent=report.percent,
            stage=report.stage,
            updated_at=updated_at,
        )

    def get(self, job_id: UUID) -> ProgressRecord | None:
        row = self._rows.filter(job_id=job_id).first()
        return None if row is None else ProgressRecord(row.percent, row.stage, row.updated_at)

    def prune(self, older_than: float, limit: int, now: datetime | None) -> int:
        """Delete at most ``limit`` rows that nobody has written for so many seconds."""
        old = self._rows.filter(updated_at__lte=store_clock(now, -microseconds(older_than)))
        return delete_first(old.order_by("updated_at"), limit)
