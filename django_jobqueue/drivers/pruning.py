"""What may be deleted because it is old: which table, and by which moment.

Only what has ended, by the moment at which it did; a job that waits or runs is never old. A further table is one more
line here, and one in ``conf.PRUNED_ROWS``, which says how old.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections, models

from ..jobs.times import microseconds
from ..models import FailedJob, QueueStat, Worker
from ..models.fields import store_clock
from .transactions import own_look, own_transaction, repeating


class Prunable(NamedTuple):
    """A table, and its indexed column of the moment that counts."""

    model: type[models.Model]
    moment: str


PRUNABLE = {
    "FAILED": Prunable(FailedJob, "failed_at"),
    "WORKERS": Prunable(Worker, "heartbeat_at"),
    "STATS": Prunable(QueueStat, "minute"),
}


def prune(database: str, what: str, age: float, *, limit: int, now: datetime | None = None) -> int:
    """Delete at most ``limit`` rows that are older than ``age`` seconds, the oldest first; return how many."""
    return delete_first(_old(database, what, age, now), limit)


def delete_first(
    rows: models.QuerySet[Any], limit: int, *, before: Callable[[list[Any]], object] = lambda keys: None
) -> int:
    """Delete at most ``limit`` rows of an ordered query, in a short transaction; return how many.

    Rows that somebody else holds are left alone, so that workers that prune at once do not wait for each other.
    ``before`` is called with the keys in the same transaction, for what goes with the rows.
    """
    database = rows.db
    skips_locked = connections[database].features.has_select_for_update_skip_locked

    def look() -> bool:
        with own_look(database):
            return bool(rows.values("pk")[:1])

    def remove() -> int:
        with own_transaction(database):
            locked = rows.select_for_update(skip_locked=skips_locked)
            keys = list(locked.values_list("pk", flat=True)[:limit])
            if not keys:
                return 0
            before(keys)
            deleted: int = rows.model._default_manager.using(database).filter(pk__in=keys).delete()[0]
            return deleted

    return repeating(database, remove) if repeating(database, look) else 0


def count_old(database: str, what: str, age: float, *, now: datetime | None = None) -> int:
    """How many rows ``prune`` would delete."""
    return _old(database, what, age, now).count()


def _old(database: str, what: str, age: float, now: datetime | None) -> models.QuerySet[Any]:
    model, moment = PRUNABLE[what]
    rows = model._default_manager.using(database)
    return rows.filter(**{f"{moment}__lt": store_clock(now, -microseconds(age))}).order_by(moment, "pk")
