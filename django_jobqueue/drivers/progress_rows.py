"""Progress in the database: one row for each job that says how far it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet

from ..jobs.records import ProgressRecord, Report
from ..jobs.times import microseconds
from ..models import Job, Progress
from ..models.fields import store_clock
from .progress import ProgressStore, said_by_holders
from .pruning import delete_first
from .transactions import own_look, own_transaction, repeating


class ProgressRows(ProgressStore):
    """The rows of one connection in the Progress table of ``database``."""

    def __init__(self, connection: str, database: str) -> None:
        self.connection = connection
        self.database = database

    @property
    def _rows(self) -> QuerySet[Progress]:
        return Progress.objects.using(self.database).filter(connection=self.connection)

    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        def save() -> None:
            with own_transaction(self.database):
                valid = said_by_holders(reports, partial(still_held, self.database))
                targets = connections[self.database].features.supports_update_conflicts_with_target
                Progress.objects.using(self.database).bulk_create(
                    list({one.id: self._row(one, now) for one in valid}.values()),
                    update_conflicts=True,
                    update_fields=["connection", "percent", "stage", "state", "updated_at"],
                    unique_fields=["job_id"] if targets else None,
                )

        repeating(self.database, save)

    def _row(self, report: Report, now: datetime | None) -> Progress:
        updated_at: Any = store_clock(now)
        return Progress(
            job_id=report.id,
            connection=self.connection,
            percent=report.percent,
            stage=report.stage,
            state=report.state,
            updated_at=updated_at,
        )

    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        return {
            row.job_id: ProgressRecord(row.percent, row.stage, row.updated_at, row.state)
            for row in self._rows.filter(job_id__in=job_ids)
        }

    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        old = self._rows.filter(updated_at__lte=store_clock(now, -microseconds(older_than)))
        return delete_first(old.order_by("updated_at"), limit)


def still_held(database: str, reservations: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
    """Those of the ids and tokens whose reservation is still that one."""
    if not reservations:
        return set()
    ids = {job_id for job_id, _token in reservations}
    with own_look(database):
        tokens = dict(Job.objects.using(database).filter(id__in=ids).values_list("id", "token"))
    return {(job_id, token) for job_id, token in reservations if tokens.get(job_id) == token}
