"""work_once: rescue, stage, reserve and run at most one job, in this order, in the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, at_once
from tests.helpers.notes import note
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


# work_once


def test_without_a_job_there_is_nothing_to_do(driver: Driver, worker: Worker, clock: Clock) -> None:
    assert not worker.work_once(now=clock.now)
    assert worker.stats == WorkerStats()


def test_one_call_runs_one_job(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    note("a", "b")
    assert worker.work_once(now=clock.now)
    assert done == ["a"]


def test_one_call_rescues_and_then_runs_what_it_rescued(
    driver: Driver, worker: Worker, clock: Clock, done: list[Any]
) -> None:
    note("a")
    driver.reserve("default", "dead", ReserveLimit(rows=1, max_attempts=3), retry_after=90, now=clock.now)
    assert not worker.work_once(now=clock.tick(89))
    assert worker.work_once(now=clock.tick(2))
    assert done == ["a"]


def test_one_call_stages_and_then_runs_what_is_due(
    driver: Driver, worker: Worker, clock: Clock, done: list[Any]
) -> None:
    note("a", delay=300)
    assert not worker.work_once(now=clock.now)
    assert worker.work_once(now=clock.tick(300))
    assert done == ["a"]


def test_a_rescue_goes_before_a_reserve(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    """Rescued behind its rank, so that the other runs first; and not left reserved meanwhile."""
    (rescued,) = note("rescued")
    driver.reserve("default", "dead", ReserveLimit(rows=1, max_attempts=3), retry_after=90, now=clock.now)
    note("waiting")
    worker.work_once(now=clock.tick(91))
    assert done == ["waiting"]
    job = get_job(rescued)
    assert job is not None
    assert job.state == "ready"


def test_work_once_starts_no_thread(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    before = set(threading.enumerate())
    note("a", "b")
    while worker.work_once(now=clock.now):
        assert set(threading.enumerate()) <= before


def test_work_once_runs_jobs_in_the_calling_thread(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register()
    def look() -> None:
        seen.append(threading.current_thread())

    look.dispatch()
    worker.work_once(now=clock.now)
    assert seen == [threading.current_thread()]


def test_two_workers_that_look_at_once_share_the_jobs(
    driver: Driver, make_worker: Make, register: Register, done: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """F03: one gets the job, the other the next one or nothing, and neither complains."""
    for _ in range(5):
        note("job")
        workers = [make_worker(), make_worker()]
        found = at_once(2, lambda: workers.pop().work_once())  # noqa: B023 - used up in this round
        assert sorted(found) in ([False, True], [True, True])
        assert found.count(True) == 1
    assert len(done) == 5
    assert [record for record in caplog.records if record.levelname != "INFO" and record.levelname != "DEBUG"] == []


def test_equal_dispatches_are_jobs_of_their_own(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F05"""
    seen = []

    @register(max_attempts=1)
    def add(number: int) -> None:
        from django_jobqueue import current_job

        seen.append(current_job().id)  # type: ignore[union-attr]
        if len(seen) == 1:
            raise ValueError

    ids = [add.using(delay=1).dispatch(1).id for _ in range(3)] + [add.dispatch(1).id for _ in range(2)]
    while worker.work_once(now=clock.now):
        pass
    assert sorted(seen) == sorted(ids)
    assert len(set(ids)) == 5
    assert driver.failed_count() == 1


# Which queues, and in which order


def test_a_worker_serves_every_queue_unless_told(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    for queue in ("a", "b", "c"):
        note(queue, queue=queue)
    while worker.work_once(now=clock.now):
        pass
    assert sorted(done) == ["a", "b", "c"]


def test_listed_queues_are_served_in_strict_order(
    driver: Driver, make_worker: Make, clock: Clock, done: list[Any]
) -> None:
    """F06"""
    note(*range(10), queue="low")
    note("first", "second", queue="high")
    note("never", queue="other")
    worker = make_worker(queues=("high", "low"))
    while worker.work_once(now=clock.now):
        if len(done) == 5:
            note("urgent", queue="high")
    assert done == ["first", "second", 0, 1, 2, "urgent", *range(3, 10)]


def test_every_queue_gets_its_turn(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    for queue in ("a", "b"):
        note(*[queue] * 4, queue=queue)
    while worker.work_once(now=clock.now):
        pass
    assert done in (["a", "b"] * 4, ["b", "a"] * 4)


def test_jobs_of_one_queue_run_in_the_order_of_dispatch(
    driver: Driver, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    """F06"""
    note(*range(50))
    simulation.run(make_worker(stop_when_empty=True))
    assert done == list(range(50))


def test_a_higher_priority_runs_first(driver: Driver, worker: Worker, clock: Clock, done: list[Any]) -> None:
    note("low", priority=-1)
    note("normal")
    note("high", priority=1)
    while worker.work_once(now=clock.now):
        pass
    assert done == ["high", "normal", "low"]
