"""What was done is counted in memory, and stored beside the work: exact after a clean stop, and needed by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from django_jobqueue import current_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.models import QueueStat
from django_jobqueue.running import housekeeping, tally
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.pool import Pool
from django_jobqueue.running.worker import Worker
from tests.helpers.listening import Heard
from tests.helpers.redis import REDIS, entry, wipe
from tests.helpers.waiting import wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
OUTCOMES = ("processed", "released", "failed", "lost")


@pytest.fixture(params=["database", REDIS])
def store(request: pytest.FixtureRequest, transactional_db: None, settings: Any) -> Iterator[Driver]:
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": entry() if request.param == "redis" else {"DRIVER": "database"}},
        "BACKOFF": 0,
    }
    yield connections["default"]
    if request.param == "redis":
        wipe(connections["default"])


@pytest.fixture
def work(register: Register) -> Any:
    @register(max_attempts=2)
    def work(mode: str = "") -> None:
        if mode == "fail":
            raise ValueError
        if mode == "release" and (job := current_job()) is not None:
            job.release(3600)

    return work


def make_pool(**options: Any) -> Pool:
    return Pool(WorkerOptions.from_settings(**{"stop_when_empty": True, "sleep": 0.05, **options}))


def stored(**names: Any) -> tuple[int, ...]:
    """Processed, released, failed and lost, over all minutes."""
    rows = QueueStat.objects.filter(connection="default", **names).values_list(*OUTCOMES)
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0, 0, 0, 0)


def test_counts_are_exact_after_a_clean_stop_of_several_workers(store: Driver, work: Any) -> None:
    for number in range(40):
        work.using(queue="mail" if number % 4 == 0 else "default").dispatch()
    work.dispatch("fail")
    work.dispatch("release")
    pools = [make_pool(workers=2) for _ in range(2)]
    for pool in pools:
        pool.start()
    for pool in pools:
        pool.join()
    assert stored(name="tests.work", queue="mail") == (10, 0, 0, 0)
    assert stored(name="tests.work", queue="default") == (30, 2, 1, 0), "the first attempt that failed went back"
    done = pools[0].stats + pools[1].stats
    assert stored() == (done.processed, done.released, done.failed, done.lost)


def test_one_worker_in_the_calling_thread_stores_its_counts_at_the_end_too(store: Driver, work: Any) -> None:
    work.dispatch()
    assert make_pool().run() == WorkerStats(processed=1)
    assert stored() == (1, 0, 0, 0)


def test_a_run_whose_reservation_was_lost_counts_as_lost(store: Driver, register: Register) -> None:
    started: list[int] = []

    @register()
    def work() -> None:
        started.append(1)
        if len(started) == 1:
            store.rescue(max_attempts=3, now=datetime.now(UTC) + timedelta(hours=1))

    work.dispatch()
    make_pool().run()
    assert stored() == (1, 0, 0, 1)


def test_times_are_those_that_the_signal_tells(database: Driver, work: Any, heard: Heard) -> None:
    work.dispatch()
    make_pool().run()
    told = heard.one("job_processed")
    (row,) = QueueStat.objects.all()
    assert row.elapsed_sum == row.elapsed_max == round(told["elapsed"] * 1_000_000)
    assert row.waited_sum == row.waited_max == round(told["waited"] * 1_000_000)


def test_what_was_stored_while_it_works_is_all_that_a_killed_process_leaves(
    database: Driver, work: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed stores nothing more, as here one whose store refuses until its end."""
    monkeypatch.setattr(housekeeping, "COUNT_SECONDS", 0.01)
    pool = make_pool(stop_when_empty=False)
    running = start(pool)
    work.dispatch()
    wait_until(lambda: stored() == (1, 0, 0, 0), "it is stored while it works")
    monkeypatch.setattr(Ledger, "count", refuse)
    work.dispatch()
    wait_until(lambda: pool.stats.processed == 2, "another has ended")
    pool.stopping.ask("the end")
    running.end()
    assert stored() == (1, 0, 0, 0)


def refuse(self: Ledger, counts: Any) -> None:
    raise OperationalError("gone")


@pytest.mark.parametrize("error", [OperationalError("gone"), ValueError("broken")])
def test_a_store_that_refuses_counts_stops_no_worker_and_gets_them_later(
    database: Driver, work: Any, start: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(housekeeping, "COUNT_SECONDS", 0.01)
    real, refused = Ledger.count, []

    def count(self: Ledger, counts: Any) -> None:
        if len(refused) < 3:
            refused.append(counts)
            raise error
        real(self, counts)

    monkeypatch.setattr(Ledger, "count", count)
    pool = make_pool(stop_when_empty=False)
    running = start(pool)
    for _ in range(5):
        work.dispatch()
    wait_until(lambda: stored() == (5, 0, 0, 0), "all are counted in the end")
    assert len(refused) == 3
    pool.stopping.ask("the end")
    assert running.end() == WorkerStats(processed=5)
    assert stored() == (5, 0, 0, 0)


def test_what_could_not_be_stored_for_too_long_is_dropped(
    database: Driver, work: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tally, "MOST_COUNTS", 0)
    monkeypatch.setattr(Ledger, "count", refuse)
    work.dispatch()
    assert make_pool().run() == WorkerStats(processed=1)
    assert "were dropped" in caplog.text


def test_runs_in_memory_are_not_counted(transactional_db: None, memory: Driver, work: Any) -> None:
    work.dispatch()
    pool = make_pool()
    assert pool.run() == WorkerStats(processed=1)
    assert pool._housekeeper.tally.take(["default"]) == {}
    assert not QueueStat.objects.exists()


def test_without_a_pool_nothing_is_counted(database: Driver, work: Any, worker: Worker) -> None:
    work.dispatch()
    assert worker.work_once()
    assert not QueueStat.objects.exists()
