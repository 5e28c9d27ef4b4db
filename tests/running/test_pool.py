"""One process: several loops, one shutdown, one budget, merged counts; a loop that ends by itself is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.running import pool as pool_module
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.pool import Pool
from django_jobqueue.running.worker import Worker
from tests.helpers.gates import Gate, Started
from tests.helpers.listening import Heard
from tests.helpers.waiting import DEADLINE, wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Start = Callable[..., Started]


def make_pool(abandon: Callable[[int], None] = lambda code: None, **options: Any) -> Pool:
    return Pool(WorkerOptions.from_settings(**{"stop_when_empty": True, "sleep": 0.05, **options}), abandon=abandon)


@pytest.fixture(autouse=True)
def replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "REPLACE_PAUSE", 0.01)


def test_one_loop_runs_in_the_calling_thread(driver: Driver, register: Register) -> None:
    seen: list[threading.Thread] = []

    @register()
    def look() -> None:
        seen.append(threading.current_thread())

    look.dispatch()
    assert make_pool().run() == WorkerStats(processed=1)
    assert seen == [threading.current_thread()]


def test_loops_share_the_work_and_their_counts_are_merged(driver: Driver, register: Register) -> None:
    together = threading.Barrier(3)

    @register(max_attempts=1)
    def meet(fails: bool) -> None:
        together.wait(DEADLINE)  # which needs three loops at once
        if fails:
            raise ValueError

    for fails in (True, False, False):
        meet.dispatch(fails)
    assert make_pool(workers=3).run() == WorkerStats(processed=2, failed=1)


def test_every_job_runs_once_over_many_loops(driver: Driver, register: Register) -> None:
    seen: list[int] = []

    @register()
    def note(number: int) -> None:
        seen.append(number)

    for number in range(100):
        note.dispatch(number)
    stats = make_pool(workers=4).run()
    assert sorted(seen) == list(range(100))
    assert (stats.processed, stats.runs) == (100, 100)


def test_max_jobs_is_the_limit_of_the_whole_process(driver: Driver, register: Register) -> None:
    seen: list[int] = []

    @register()
    def note(number: int) -> None:
        seen.append(number)

    ids = [note.dispatch(number).id for number in range(40)]
    stats = make_pool(workers=3, max_jobs=17, stop_when_empty=False).run()
    assert (len(seen), stats.processed) == (17, 17)
    left = [job for job in map(get_job, ids) if job is not None]
    assert {(job.state, job.attempts) for job in left} == {("ready", 0)}
    assert len(left) == 23


def test_one_ask_ends_every_loop(driver: Driver, start: Start, heard: Heard) -> None:
    pool = make_pool(workers=3, stop_when_empty=False, sleep=10 * DEADLINE)
    running = start(pool)
    wait_until(lambda: len(heard.all("worker_started")) == 3, "three loops have started")
    pool.stopping.ask("SIGTERM", 15)
    assert running.end() == WorkerStats()
    assert {sent["reason"] for sent in heard.all("worker_stopped")} == {"SIGTERM"}
    assert len({sent["worker"] for sent in heard.all("worker_stopped")}) == 3


def test_a_pool_leaves_no_thread_behind(driver: Driver, register: Register) -> None:
    """F90"""

    @register()
    def note() -> None: ...

    before = set(threading.enumerate())
    for _ in range(3):
        note.dispatch()
        make_pool(workers=2).run()
    assert set(threading.enumerate()) <= before


def test_a_loop_that_ends_by_itself_is_logged_and_replaced(
    driver: Driver, register: Register, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, heard: Heard
) -> None:
    seen: list[int] = []

    @register()
    def note() -> None:
        seen.append(1)

    reserve = driver.reserve
    mistakes = [ValueError("a mistake of ours"), ValueError("another")]

    def err(*given: Any, **options: Any) -> Any:
        if mistakes:
            raise mistakes.pop()
        return reserve(*given, **options)

    monkeypatch.setattr(driver, "reserve", err)
    note.dispatch()
    assert make_pool().run() == WorkerStats(processed=1)
    assert seen == [1]
    crashed = [record for record in caplog.records if getattr(record, "event", "") == "worker_crashed"]
    assert len(crashed) == 2
    assert [sent["reason"] for sent in heard.all("worker_stopped")] == ["error", "error", "empty"]


def test_a_loop_that_ended_by_itself_keeps_its_counts_and_gives_back_what_it_held(
    driver: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Worker._run_jobs
    mistakes = [ValueError("a mistake of ours")]
    seen: list[int] = []

    @register()
    def note(number: int) -> None:
        seen.append(number)

    def err(self: Worker, lane: Any, count: int) -> None:
        if count > 1 and mistakes:
            raise mistakes.pop()
        real(self, lane, count)

    monkeypatch.setattr(Worker, "_run_jobs", err)
    for number in range(7):
        note.dispatch(number)
    assert make_pool().run() == WorkerStats(processed=7)
    assert seen == list(range(7))


def test_a_loop_that_ended_by_itself_does_not_eat_up_max_jobs(
    driver: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @register()
    def note(number: int) -> None:
        seen.append(number)

    reserve = driver.reserve
    mistakes = [ValueError("a mistake of ours")] * 3

    def err(*given: Any, **options: Any) -> Any:
        if mistakes:
            raise mistakes.pop()
        return reserve(*given, **options)

    monkeypatch.setattr(driver, "reserve", err)
    for number in range(10):
        note.dispatch(number)
    assert make_pool(max_jobs=5).run() == WorkerStats(processed=5)
    assert seen == [0, 1, 2, 3, 4]


def test_a_stop_ends_a_loop_that_is_about_to_be_replaced(
    memory: Driver, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool_module, "REPLACE_PAUSE", 10 * DEADLINE)

    def err(*given: Any, **options: Any) -> Any:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(memory, "queues", err)
    pool = make_pool()
    running = start(pool)
    wait_until(lambda: "A worker loop ended by itself" in caplog.text, "the loop has ended")
    pool.stopping.ask("SIGTERM", 15)
    running.end()


# Giving up


def test_a_handler_that_does_not_end_is_left_with_the_number_of_its_signal(
    driver: Driver, register: Register, start: Start, gate: Gate
) -> None:
    codes: list[int] = []

    @register()
    def slow() -> None:
        gate.pass_through()

    job_id = slow.dispatch().id
    pool = make_pool(codes.append, stop_when_empty=False)
    start(pool)
    gate.wait_until_entered()
    pool.stopping.ask("SIGTERM", 15)
    assert codes == []
    pool.stopping.ask("SIGTERM", 15)
    wait_until(lambda: codes, "the pool gives up")
    assert codes[0] == 128 + 15
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.attempts) == ("ready", 0)


def test_a_pool_waits_for_the_loops_that_give_up_nothing(
    driver: Driver, register: Register, start: Start, gate: Gate
) -> None:
    """Only when every loop that still runs was given up is the process left."""
    codes: list[int] = []
    quick = Gate()

    @register()
    def slow() -> None:
        gate.pass_through()

    @register()
    def ends() -> None:
        quick.pass_through()

    pool = make_pool(codes.append, workers=2, stop_when_empty=False, grace=0)
    slow.dispatch()
    ends.dispatch()
    start(pool)
    try:
        gate.wait_until_entered()
        quick.wait_until_entered()
        abandoned = next(worker for worker in pool._running if worker._hand.running.job.name == "tests.slow")  # type: ignore[union-attr]
        pool.stopping.ask("SIGTERM")
        pool._give_up(abandoned)
        assert codes == []
    finally:
        quick.open()
    wait_until(lambda: codes, "the pool gives up")


def test_the_counts_of_a_pool_can_be_read_while_it_runs(
    driver: Driver, register: Register, start: Start, gate: Gate
) -> None:
    @register()
    def note() -> None: ...

    @register(priority=-1)
    def slow() -> None:
        gate.pass_through()

    note.dispatch()
    slow.dispatch()
    pool = make_pool()
    running = start(pool)
    gate.wait_until_entered()
    assert pool.stats == WorkerStats(processed=1)
    gate.open()
    assert running.end() == WorkerStats(processed=2)
