"""The counts of runs in the database: added to by every worker process, one row for each minute and job.

What is a day old is rolled up: the minutes of an hour become one row, which is added to when more of them come late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ExpressionWrapper, F, Max, QuerySet, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest

from ..jobs.counts import HOUR, HOUR_SECONDS, MINUTE, MINUTE_SECONDS, ROLLED_UP_AFTER, Count, Counted, CountKey
from ..jobs.times import from_microseconds, microseconds, to_microseconds
from ..models import QueueStat
from ..models.fields import ClockField, store_clock
from .pruning import delete_first
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
            _add(database, {key: _values(count) for key, count in counts.items()})

    repeating(database, save)


def roll_up(database: str, limit: int, now: datetime | None) -> int:
    """Make at most ``limit`` minutes part of their hours, in one transaction; return how many.

    Only those of hours that ended a day ago, the oldest first, and none that somebody else holds. A minute that is
    stored later still is a row of its own, until the next time.
    """
    minutes = QueueStat.objects.using(database).filter(
        seconds=MINUTE_SECONDS, minute__lt=_whole(HOUR, now, -ROLLED_UP_AFTER * 1_000_000)
    )
    return delete_first(minutes.order_by("minute", "pk"), limit, before=partial(_add_to_hours, database))


def _add_to_hours(database: str, minutes: Collection[int]) -> None:
    hours: dict[CountKey, dict[str, int]] = {}
    for row in QueueStat.objects.using(database).filter(pk__in=minutes):
        moment = to_microseconds(row.minute)
        key = CountKey(moment - moment % HOUR, row.connection, row.queue, row.name, HOUR_SECONDS)
        values = hours.setdefault(key, dict.fromkeys((*OUTCOMES, *SUMS, *MAXIMA), 0))
        for name in (*OUTCOMES, *SUMS):
            values[name] += getattr(row, name)
        for name in MAXIMA:
            values[name] = max(values[name], getattr(row, name))
    _add(database, hours)


def _add(database: str, counts: Mapping[CountKey, dict[str, int]]) -> None:
    for key in sorted(counts):  # in one order everywhere, so that nobody waits in a circle
        _add_to_row(QueueStat.objects.using(database), database, key, counts[key])


def _add_to_row(rows: QuerySet[QueueStat], database: str, key: CountKey, values: dict[str, int]) -> None:
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
        if not row.update(**more):
            raise  # and the row is gone again, rolled up or pruned: nothing of this transaction counts


def _values(count: Count) -> dict[str, int]:
    times = {name: microseconds(getattr(count, name)) for name in (*SUMS, *MAXIMA)}
    return {**{name: getattr(count, name) for name in OUTCOMES}, **times}


def _whole(unit: int, now: datetime | None, plus: int) -> Combinable:
    """The beginning of the minute or hour in which the store's clock is, or ``plus`` microseconds from then."""
    moment = store_clock(now, plus)
    return ExpressionWrapper(moment - moment % unit, output_field=ClockField())


def total(database: str, since: float, connection: str | None, *, now: datetime | None = None) -> list[Counted]:
    """What was done from the minute on that was ``since`` seconds ago, by connection, queue and name.

    From the hour on, where that is so long ago that minutes are rolled up.
    """
    start = _whole(MINUTE if since <= ROLLED_UP_AFTER else HOUR, now, -microseconds(since))
    rows = QueueStat.objects.using(database).filter(minute__gte=start)
    if connection is not None:
        rows = rows.filter(connection=connection)
    sums = {f"_{name}": Sum(name) for name in (*OUTCOMES, *SUMS)}
    found = rows.order_by("connection", "queue", "name").values("connection", "queue", "name")
    maxima = {f"_{name}": Max(name) for name in MAXIMA}
    return [_counted(row) for row in found.annotate(**sums, **maxima, _since=Max(start))]


def _counted(row: Any) -> Counted:
    # MySQL and MariaDB sum to decimal numbers.
    values: dict[str, Any] = {name: int(row[f"_{name}"]) for name in OUTCOMES}
    values |= {name: int(row[f"_{name}"]) / 1_000_000 for name in (*SUMS, *MAXIMA)}
    return Counted(row["connection"], row["queue"], row["name"], row["_since"], Count(**values))
