"""What a database keeps beside the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections as databases

from django_jobqueue.drivers import connections, ledgers_of
from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.drivers.memory import MemoryDriver
from django_jobqueue.jobs.counts import MINUTE, Count, CountKey
from django_jobqueue.jobs.times import to_microseconds
from django_jobqueue.jobs.workers import BEAT_SECONDS, LATE_SECONDS, LOST_SECONDS, WorkerReport
from django_jobqueue.models import QueueStat, Worker, WorkerRequest
from tests.drivers.contract import Clock
from tests.helpers.aliases import database_alias
from tests.helpers.rows import statements
from tests.helpers.threads import in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger("default")


def report(**changes: Any) -> WorkerReport:
    given = {
        "id": uuid4(),
        "name": "web-1",
        "host": "web-1",
        "pid": 1,
        "queues": ("high", "default"),
        "workers": 4,
        "version": "0.1.0",
        "is_embedded": False,
        "ran": 2.5,
        "processed": 1,
        "released": 2,
        "failed": 3,
        "lost": 4,
        "memory": 50_000_000,
    }
    return WorkerReport(**{**given, **changes})


def test_a_worker_is_known_by_what_it_said_last(ledger: Ledger, clock: Clock) -> None:
    first = report()
    ledger.beat(first, now=clock.now)
    started = clock.after(-2.5)
    ledger.beat(replace(first, ran=12.5, processed=9, memory=None), now=clock.tick(10))
    (known,) = ledger.workers(now=clock.after(3))
    assert (known.id, known.name, known.pid, known.queues) == (first.id, "web-1", 1, ("high", "default"))
    assert (known.processed, known.released, known.failed, known.lost, known.memory) == (9, 2, 3, 4, None)
    assert (known.started_at, known.heartbeat_at, known.silence, known.ran) == (started, clock.now, 3, 12.5)


def test_the_store_says_when_it_heard_of_a_worker(ledger: Ledger) -> None:
    ledger.beat(report(ran=60))
    (known,) = ledger.workers()
    assert 0 <= known.silence < BEAT_SECONDS
    assert (known.heartbeat_at - known.started_at).total_seconds() == pytest.approx(60, abs=1)


@pytest.mark.parametrize(
    ("silence", "state"),
    [(0, "alive"), (LATE_SECONDS - 1, "alive"), (LATE_SECONDS, "late"), (LOST_SECONDS, "lost"), (1e9, "lost")],
)
def test_the_state_of_a_worker_is_the_age_of_its_heartbeat(
    ledger: Ledger, clock: Clock, silence: float, state: str
) -> None:
    ledger.beat(report(), now=clock.now)
    (known,) = ledger.workers(now=clock.after(silence))
    assert known.state == state


def test_two_starts_of_one_host_and_pid_are_two_workers(ledger: Ledger) -> None:
    """F19"""
    ledger.beat(report())
    ledger.beat(report())
    assert Worker.objects.count() == 2


def test_a_worker_that_leaves_is_forgotten_and_no_other_is(ledger: Ledger) -> None:
    first, second = report(), report()
    for one in (first, second):
        ledger.beat(one)
    ledger.leave(first.id)
    ledger.leave(first.id)
    assert [known.id for known in ledger.workers()] == [second.id]


def test_a_row_that_was_pruned_under_a_worker_comes_back(ledger: Ledger) -> None:
    one = report()
    ledger.beat(one)
    Worker.objects.all().delete()
    ledger.beat(one)
    assert [known.id for known in ledger.workers()] == [one.id]


# What is asked


def test_what_was_asked_last_counts(ledger: Ledger, clock: Clock) -> None:
    assert ledger.asked("restart", now=clock.now) is None
    ledger.ask("restart", now=clock.now)
    ledger.ask("restart", now=clock.tick(5))
    ledger.ask("else", now=clock.tick(5))
    wish = ledger.asked("restart", now=clock.tick(5))
    assert wish is not None
    assert (wish.ago, WorkerRequest.objects.count()) == (10, 2)


def test_two_who_ask_for_the_first_time_at_once_both_have_asked(
    ledger: Ledger,
) -> None:
    in_threads(4, lambda _: Ledger("default").ask("restart"))
    assert ledger.asked("restart") is not None


def test_asking_is_one_read_by_the_primary_key(ledger: Ledger) -> None:
    ledger.ask("restart")
    (sql,) = statements(lambda: ledger.asked("restart"))
    assert sql.startswith("SELECT")
    assert "name" in sql.partition("WHERE")[2]


def test_connections_on_one_database_have_one_ledger(settings: Any) -> None:
    with database_alias("archive"):
        settings.JOBQUEUE = {
            "CONNECTIONS": {
                "default": {"DRIVER": "database"},
                "again": {"DRIVER": "database"},
                "archive": {"DRIVER": "database", "DATABASE": "archive"},
                "memory": {"DRIVER": "memory"},
            }
        }
        assert [ledger.database for ledger in ledgers_of(connections.all())] == ["default", "archive"]
    assert MemoryDriver("default", {}).ledger is None


def test_a_database_without_the_tables_is_an_outage(tmp_path: Any) -> None:
    place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "empty.sqlite3")}
    with database_alias("empty", **place):
        databases["empty"].settings_dict["OPTIONS"] = {}
        with pytest.raises(Ledger.outages):
            Ledger("empty").beat(report())


# What was done


def done(clock: Clock, minutes: int = 0, name: str = "shop.work", connection: str = "default") -> CountKey:
    """The key of the minute in which the clock is, or of one before."""
    moment = to_microseconds(clock.now)
    return CountKey(moment - moment % MINUTE - minutes * MINUTE, connection, "default", name)


def test_counts_are_added_to_what_is_stored(ledger: Ledger, clock: Clock) -> None:
    key = done(clock)
    ledger.count({key: Count(processed=2, elapsed_sum=3, elapsed_max=2, waited_sum=0.5, waited_max=0.4)})
    ledger.count({key: Count(processed=1, failed=1, lost=1, elapsed_sum=4, elapsed_max=1.5, waited_max=0.7)})
    (found,) = ledger.total(3600, now=clock.now)
    assert (found.connection, found.queue, found.name) == ("default", "default", "shop.work")
    assert found.count == Count(
        processed=3, failed=1, lost=1, elapsed_sum=7, elapsed_max=2, waited_sum=0.5, waited_max=0.7
    )
    assert (found.count.runs, found.count.elapsed_mean, found.count.waited_mean) == (5, 1.4, 0.1)
    assert QueueStat.objects.count() == 1


def test_processes_that_add_at_once_lose_nothing(ledger: Ledger, clock: Clock) -> None:
    keys = [done(clock, name=name) for name in ("shop.one", "shop.two", "shop.three")]

    def add(number: int) -> None:
        order = keys if number % 2 else keys[::-1]
        for _ in range(3):
            Ledger("default").count({key: Count(processed=1) for key in order})

    in_threads(4, add)
    assert [found.count.processed for found in ledger.total(3600, now=clock.now)] == [12, 12, 12]


def test_the_counts_of_a_time_are_those_of_its_minutes(ledger: Ledger, clock: Clock) -> None:
    for minutes in (0, 1, 59, 62, 1000):
        ledger.count({done(clock, minutes): Count(processed=1)})
    ledger.count({done(clock, connection="other"): Count(processed=1)})
    assert [found.count.processed for found in ledger.total(3600, now=clock.now)] == [3, 1]
    assert [found.connection for found in ledger.total(3600, "other", now=clock.now)] == ["other"]
    assert ledger.prune("STATS", 3600, limit=10, now=clock.now) == 2
