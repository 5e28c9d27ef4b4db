"""The counts of runs in the database: added to by every worker process, one row for each minute and job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Max, QuerySet, Sum, Value
from django.db.models.functions import Greatest

from ..jobs.counts import MINUTE, Count, Counted, CountKey
from ..jobs.times import from_microseconds, microseconds
from ..models import QueueStat
from ..models.fields import store_clock
from .transactions import own_transaction, repeating

OUTCOMES = ("processed", "released", "failed", "lost")
SUMS = ("elapsed_sum", "waited_sum")
MAXIMA = ("elapsed_max", "waited_max")


def add(database: str, counts: Mapping[CountKey, Count]) -> None:
    """Add to what is stored, all or nothing, in one transaction.

    Only where a connection breaks during the commit, and the commit took place, may it be added twice.
    """

    def save() -> None:
        with own_transaction(database):
            for key in sorted(counts):  # in one order everywhere, so that nobody waits in a circle
                _add(QueueStat.objects.using(database), database, key, _values(counts[key]))

    repeating(database, save)


def _add(rows: QuerySet[QueueStat], database: str, key: CountKey, values: dict[str, int]) -> None:
    names: dict[str, Any] = {**key._asdict(), "minute": from_microseconds(key.minute)}
    row = rows.filter(**names)
    more: dict[str, Any] = {name: F(name) + values[name] for name in (*OUTCOMES, *SUMS)}
    more |= {name: Greatest(F(name), Value(values[name])) for name in MAXIMA}
    if row.update(**more):
        return
    try:
        with transaction.atomic(using=database):
            rows.create(**names, **values)
    except IntegrityError:  # another process was the first just now
        row.update(**more)


def _values(count: Count) -> dict[str, int]:
    times = {name: microseconds(getattr(count, name)) for name in (*SUMS, *MAXIMA)}
    return {**{name: getattr(count, name) for name in OUTCOMES}, **times}


def total(database: str, since: float, connection: str | None, *, now: datetime | None = None) -> list[Counted]:
    """What the minutes hold of which a part is at most ``since`` seconds old, by connection, queue and name."""
    rows = QueueStat.objects.using(database).filter(minute__gt=store_clock(now, -microseconds(since) - MINUTE))
    if connection is not None:
        rows = rows.filter(connection=connection)
    sums = {f"_{name}": Sum(name) for name in (*OUTCOMES, *SUMS)}
    found = rows.order_by("connection", "queue", "name").values("connection", "queue", "name")
    return [_counted(row) for row in found.annotate(**sums, **{f"_{name}": Max(name) for name in MAXIMA})]


def _counted(row: Any) -> Counted:
    # MySQL and MariaDB sum to decimal numbers.
    values: dict[str, Any] = {name: int(row[f"_{name}"]) for name in OUTCOMES}
    values |= {name: int(row[f"_{name}"]) / 1_000_000 for name in (*SUMS, *MAXIMA)}
    return Counted(row["connection"], row["queue"], row["name"], Count(**values))
