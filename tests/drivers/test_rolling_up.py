"""Counts of minutes that are a day old become those of hours: once each, whoever else adds or rolls up meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection

from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.jobs.counts import HOUR_SECONDS, MINUTE_SECONDS, Count, CountKey
from django_jobqueue.jobs.times import to_microseconds
from django_jobqueue.models import QueueStat
from tests.drivers.contract import Clock
from tests.helpers.holding import held_open
from tests.helpers.rows import plan, statements
from tests.helpers.threads import all_at_once

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 86_400.0
MONTH = 30 * DAY


@pytest.fixture
def ledger() -> Ledger:
    return Ledger("default")


def minute(moment: datetime, name: str = "shop.work", queue: str = "default", connection: str = "default") -> CountKey:
    return CountKey(to_microseconds(moment), connection, queue, name)


def old(clock: Clock, minutes: int = 0) -> datetime:
    """In the hour from 9 to 10 of two days ago; the clock shows noon."""
    return clock.now - timedelta(days=2, hours=3) + timedelta(minutes=minutes)


def stored() -> list[tuple[datetime, int, int]]:
    """The beginning of each row, its seconds and what was processed, in order."""
    return list(QueueStat.objects.order_by("minute", "seconds").values_list("minute", "seconds", "processed"))


def roll_up_all(now: datetime, limit: int = 2) -> None:
    while Ledger("default").roll_up(limit, now=now):
        pass


def test_sums_are_added_and_of_maxima_the_largest_stays(ledger: Ledger, clock: Clock) -> None:
    first = Count(1, 2, 3, 4, elapsed_sum=5, elapsed_max=4, waited_sum=0.5, waited_max=0.25)
    second = Count(10, 20, 30, 40, elapsed_sum=50, elapsed_max=3, waited_sum=5, waited_max=2)
    ledger.count({minute(old(clock, 0)): first, minute(old(clock, 59)): second})
    assert ledger.roll_up(10, now=clock.now) == 2
    (row,) = QueueStat.objects.all()
    assert (row.minute, row.seconds) == (old(clock), HOUR_SECONDS)
    (total,) = ledger.total(MONTH, now=clock.now)
    assert astuple(total.count) == (11, 22, 33, 44, 55, 4, 5.5, 2)


def test_each_connection_queue_and_job_has_hours_of_its_own(ledger: Ledger, clock: Clock) -> None:
    others: list[dict[str, str]] = [{}, {"name": "shop.other"}, {"queue": "mail"}, {"connection": "fast"}]
    for number in (1, 2):
        ledger.count({minute(old(clock, number), **other): Count(processed=1) for other in others})
    before = ledger.total(MONTH, now=clock.now)
    assert ledger.roll_up(10, now=clock.now) == 8
    assert stored() == [(old(clock), HOUR_SECONDS, 2)] * 4
    assert ledger.total(MONTH, now=clock.now) == before


@pytest.mark.parametrize(("ended_ago", "rolled_up"), [(DAY + 1, 2), (DAY, 2), (DAY - 1, 0)])
def test_only_an_hour_that_ended_a_day_ago_is_rolled_up_and_all_of_it(
    ledger: Ledger, clock: Clock, ended_ago: float, rolled_up: int
) -> None:
    beginning = clock.now
    for number in (0, 59):
        ledger.count({minute(beginning + timedelta(minutes=number)): Count(processed=1)})
    assert ledger.roll_up(10, now=beginning + timedelta(hours=1, seconds=ended_ago)) == rolled_up


def test_the_store_says_how_old_a_minute_is(ledger: Ledger, clock: Clock) -> None:
    """Without a moment of the caller, by its own clock, which has not come to that of the test yet."""
    ledger.count({minute(clock.now): Count(processed=1), minute(clock.now.replace(year=2020)): Count(processed=1)})
    assert ledger.roll_up(10) == 1


def test_the_oldest_go_first_and_no_more_than_the_limit_at_once(ledger: Ledger, clock: Clock) -> None:
    ledger.count({minute(old(clock, number)): Count(processed=1) for number in range(5)})
    assert ledger.roll_up(2, now=clock.now) == 2
    assert stored()[:2] == [(old(clock), HOUR_SECONDS, 2), (old(clock, 2), MINUTE_SECONDS, 1)]
    assert [ledger.roll_up(2, now=clock.now) for _ in range(3)] == [2, 1, 0]
    assert stored() == [(old(clock), HOUR_SECONDS, 5)]


def test_what_is_stored_late_is_added_to_the_hour_at_the_next_time(ledger: Ledger, clock: Clock) -> None:
    for _ in range(2):
        ledger.count({minute(old(clock)): Count(processed=1, waited_sum=1, waited_max=1)})
        roll_up_all(clock.now)
        ledger.count({minute(old(clock)): Count(processed=1, waited_sum=3, waited_max=3)})
    assert [row[1:] for row in stored()] == [(MINUTE_SECONDS, 1), (HOUR_SECONDS, 3)]
    roll_up_all(clock.now)
    assert stored() == [(old(clock), HOUR_SECONDS, 4)]
    (total,) = ledger.total(MONTH, now=clock.now)
    assert (total.count.waited_sum, total.count.waited_max) == (8, 3)


def test_those_who_roll_up_and_add_at_once_lose_and_double_nothing(ledger: Ledger, clock: Clock) -> None:
    keys = [minute(old(clock, number), name) for number in range(6) for name in ("shop.one", "shop.two")]
    ledger.count({key: Count(processed=1) for key in keys})

    def add() -> None:
        for _ in range(3):
            Ledger("default").count({key: Count(processed=1) for key in keys})

    def roll_up() -> None:
        for _ in range(3):
            roll_up_all(clock.now, limit=3)

    all_at_once([roll_up, roll_up, add, add])
    assert [found.count.processed for found in ledger.total(MONTH, now=clock.now)] == [42, 42]
    roll_up_all(clock.now)
    assert stored() == [(old(clock), HOUR_SECONDS, 42)] * 2


def test_a_minute_that_somebody_adds_to_is_left_for_the_next_time(ledger: Ledger, clock: Clock) -> None:
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("one connection writes at a time")
    held, free = minute(old(clock, 1)), minute(old(clock, 2))
    ledger.count({held: Count(processed=1), free: Count(processed=1)})
    with held_open("default", lambda: Ledger("default").count({held: Count(processed=1)}), after="UPDATE"):
        assert ledger.roll_up(10, now=clock.now) == 1
    assert ledger.roll_up(10, now=clock.now) == 1
    assert stored() == [(old(clock), HOUR_SECONDS, 3)]


def test_a_row_that_another_made_first_and_that_is_rolled_up_already_makes_the_whole_addition_fail(
    ledger: Ledger, clock: Clock
) -> None:
    """It is kept by whoever counted, and added another time."""
    late, other = minute(old(clock, 1)), minute(old(clock))
    refused: list[str] = []

    def be_second(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT") and not refused:
            refused.append(sql)
            raise IntegrityError("duplicate")
        return execute(sql, params, many, context)

    ledger.count({other: Count(processed=1)})
    counts = {other: Count(processed=1), late: Count(processed=1)}
    with connection.execute_wrapper(be_second), pytest.raises(Ledger.outages):
        ledger.count(counts)
    assert stored() == [(old(clock), MINUTE_SECONDS, 1)]
    ledger.count(counts)
    assert [row[2] for row in stored()] == [2, 1]


@pytest.mark.parametrize("statement", ["INSERT", "UPDATE", "DELETE"])
def test_one_that_breaks_off_has_done_nothing(ledger: Ledger, clock: Clock, statement: str) -> None:
    ledger.count({minute(old(clock, number)): Count(processed=1) for number in range(2)})
    before = stored()

    def break_off(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(statement) and QueueStat._meta.db_table in sql:
            raise OperationalError("gone")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(break_off), pytest.raises(OperationalError):
        ledger.roll_up(10, now=clock.now)
    assert stored() == before


def test_old_minutes_are_found_behind_however_many_hours(ledger: Ledger, clock: Clock) -> None:
    sent = statements(lambda: ledger.roll_up(10, now=clock.now))
    (sql,) = (sql for sql in sent if QueueStat._meta.db_table in sql)
    assert sql.startswith("SELECT"), "where nothing is old nobody writes"
    if connection.vendor == "sqlite":
        assert "jobqueue_stat_seconds" in plan(sql)


# What is told


def test_the_last_day_is_told_to_the_minute_and_what_was_before_to_the_hour(ledger: Ledger, clock: Clock) -> None:
    now = clock.tick(1830)  # half an hour and half a minute past
    beginning = now - timedelta(minutes=30, seconds=30)
    for days in (1, 2):
        hour = beginning - timedelta(days=days)
        ledger.count({minute(hour + timedelta(minutes=number)): Count(processed=1) for number in (29, 30, 31)})
    for _ in range(2):
        (day,), (two_days,) = (ledger.total(days * DAY, now=now) for days in (1, 2))
        assert (day.count.processed, day.since) == (2, beginning - timedelta(days=1) + timedelta(minutes=30))
        assert (two_days.count.processed, two_days.since) == (6, beginning - timedelta(days=2))
        roll_up_all(now)
    assert [row[1] for row in stored()] == [HOUR_SECONDS, MINUTE_SECONDS, MINUTE_SECONDS, MINUTE_SECONDS]


def test_hours_are_deleted_by_the_age_of_counts_as_minutes_are(ledger: Ledger, clock: Clock) -> None:
    ledger.count({minute(old(clock)): Count(processed=1)})
    roll_up_all(clock.now)
    assert ledger.prune("STATS", 3 * DAY, limit=10, now=clock.now) == 0
    assert ledger.prune("STATS", 2 * DAY, limit=10, now=clock.now) == 1
