"""The desk: which ends are settled together, when, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.records import Complete, NewResult, ReserveLimit
from django_jobqueue.running.attempt import Attempt, Ended
from django_jobqueue.running.budget import Budget
from django_jobqueue.running.desk import Desk
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, new
from tests.helpers.listening import Heard
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


class Settled:
    """The batches that were settled, each as how its jobs ended; ``events`` tells them apart from runs and waits."""

    def __init__(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.events: list[str] = []
        settle = driver.settle

        def record(settlements: Any, **given: Any) -> Any:
            self.batches.append([type(settlement).__name__ for settlement in settlements])
            self.events.append(f"settled {len(settlements)}")
            return settle(settlements, **given)

        monkeypatch.setattr(driver, "settle", record)


@pytest.fixture
def settled(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Settled:
    return Settled(driver, monkeypatch)


@pytest.fixture
def loop(make_worker: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Workers without the keeper, whose looks are by the real clock."""

    def make(**options: Any) -> Worker:
        worker = make_worker(**{"stop_when_empty": True, **options})
        monkeypatch.setattr(worker._keeper, "watch", lambda: None)
        return worker

    return make


def test_completed_jobs_of_a_slice_are_settled_together(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    @register()
    def work() -> None:
        settled.events.append("ran")

    for _ in range(15):
        work.dispatch()
    simulation.run(loop())
    assert [len(batch) for batch in settled.batches] == [1, 2, 4, 8]
    assert settled.events[:5] == ["ran", "settled 1", "ran", "ran", "settled 2"]


def test_large_results_are_settled_few_at_a_time(driver: Driver, settled: Settled, clock: Clock) -> None:
    driver.push([new() for _ in range(10)], now=clock.now)
    held = driver.reserve("default", "w1", ReserveLimit(rows=10, max_attempts=3), retry_after=90, now=clock.now).jobs
    result = NewResult(value="x" * 900_000, error="", started_at=clock.now, finished_at=clock.now, keep_for=60)
    desk = Desk(WorkerStats(), lambda: False)
    for job in held:
        attempt = Attempt(job, WorkerOptions.from_settings(), None, 0.0, desk)
        desk.hand_in(Ended(attempt, Complete(job, (), result), 0.0, is_settled=False, settle_at_once=False))
    desk.flush("default")
    assert [len(batch) for batch in settled.batches] == [4, 4, 2]
    assert desk.held() == []
    assert all(driver.get_result(job.id, now=clock.now) for job in held)


def test_settle_each_settles_every_job_by_itself(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    @register(settle="each")
    def work() -> None: ...

    for _ in range(7):
        work.dispatch()
    simulation.run(loop())
    assert [len(batch) for batch in settled.batches] == [1] * 7


def test_the_setting_settles_each_unless_the_job_says_otherwise(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    @register()
    def plain() -> None: ...

    @register(settle="batch", queue="batches")
    def batched() -> None: ...

    for _ in range(7):
        plain.dispatch()
        batched.dispatch()
    simulation.run(loop(settle="each", queues=("default", "batches")))
    assert [len(batch) for batch in settled.batches] == [1] * 7 + [1, 2, 4]


def test_a_job_that_was_reserved_alone_is_settled_alone(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    """Its name is known as quick, and it is still the only one of its batch: it is on its last attempt."""

    @register(max_attempts=1)
    def work() -> None: ...

    for _ in range(5):
        work.dispatch()
    simulation.run(loop())
    assert [len(batch) for batch in settled.batches] == [1] * 5


def test_a_failure_is_stored_at_once_and_takes_what_waits_with_it(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    @register(max_attempts=5, backoff=3600)
    def work(number: int) -> None:
        settled.events.append(f"ran {number}")
        if number == 5:
            raise ValueError

    for number in range(7):
        work.dispatch(number)
    simulation.run(loop())
    assert settled.events[-6:] == ["ran 3", "ran 4", "ran 5", "settled 3", "ran 6", "settled 1"]
    assert ["Complete", "Complete", "Release"] in settled.batches


def test_a_release_is_stored_at_once(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    from django_jobqueue import current_job

    @register()
    def work(number: int) -> None:
        settled.events.append("ran")
        if number == 3:
            current_job().release(3600)  # type: ignore[union-attr]

    for number in range(7):
        work.dispatch(number)
    simulation.run(loop())
    assert [type_ for batch in settled.batches for type_ in batch].count("Release") == 1
    assert settled.batches[2] == ["Release"]


def test_a_slice_that_runs_longer_than_thought_is_settled_and_the_rest_goes_back(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    seen: list[int] = []

    @register()
    def work(number: int) -> None:
        seen.append(number)
        simulation.advance(0.2 if number == 4 else 0.001)
        settled.events.append(f"ran {number}")

    for number in range(12):
        work.dispatch(number)
    simulation.run(loop())
    after = settled.events.index("ran 4") + 1
    assert settled.events[after] == "settled 2"
    assert seen == list(range(12))


def test_nothing_waits_to_be_settled_during_a_wait(
    driver: Driver, loop: Make, simulation: Simulation, register: Register
) -> None:
    held: list[int] = []

    @register()
    def work() -> None: ...

    for _ in range(10):
        work.dispatch()
    worker = loop(stop_when_empty=False)
    simulation.run(worker, waits=3, on_wait=lambda number: held.append(len(worker._desk.held())))
    assert held == [0, 0, 0]
    assert driver.sizes() == {}


def test_a_stop_settles_what_has_ended(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, settled: Settled
) -> None:
    worker = loop()

    @register()
    def work(number: int) -> None:
        if number == 4:
            worker.stopping.ask("SIGTERM")

    for number in range(7):
        work.dispatch(number)
    assert simulation.run(worker) == WorkerStats(processed=5)
    assert driver.sizes()["default"].waiting == 2
    assert driver.sizes()["default"].reserved == 0


def test_one_end_that_cannot_be_stored_does_not_keep_the_others(
    driver: Driver,
    loop: Make,
    simulation: Simulation,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids: list[Any] = []

    @register()
    def work() -> None: ...

    settle = driver.settle

    def refuse(settlements: Any, **given: Any) -> Any:
        if any(item.reservation.id == ids[4] for item in settlements):
            raise ValueError("cannot be stored")
        return settle(settlements, **given)

    monkeypatch.setattr(driver, "settle", refuse)
    ids += [work.dispatch().id for _ in range(7)]
    assert simulation.run(loop()) == WorkerStats(processed=6, lost=1)
    assert f"The end of the job {ids[4]} cannot be stored." in caplog.text
    assert [job_id for job_id in ids if driver.get(job_id)] == [ids[4]]


def test_each_end_is_announced_when_it_is_stored_and_not_before(
    driver: Driver, loop: Make, simulation: Simulation, register: Register, heard: Heard
) -> None:
    @register()
    def work() -> None: ...

    for _ in range(3):
        work.dispatch()
    heard.forget()
    simulation.run(loop())
    assert heard.names() == ["job_starting", "job_processed", *["job_starting"] * 2, *["job_processed"] * 2]


def test_a_lost_end_moves_nothing_and_is_announced_as_lost(
    driver: Driver, worker: Worker, clock: Clock, register: Register, heard: Heard
) -> None:
    """F04"""

    @register(max_attempts=3)
    def work(mode: str) -> None:
        driver.rescue(max_attempts=3, now=clock.after(1000))
        if mode == "raise":
            raise ValueError

    first = [work.dispatch(mode).id for mode in ("end", "raise")]
    worker.work_once(now=clock.now)
    worker.work_once(now=clock.now)
    assert heard.names()[-4:] == ["job_starting", "job_lost"] * 2
    assert not heard.all("job_processed")
    assert worker.stats.lost == 2
    assert worker.stats.processed == 0
    assert {driver.get(job_id).state for job_id in first} == {"ready"}  # type: ignore[union-attr]


def test_counts_add_up_over_workers() -> None:
    one, two = WorkerStats(processed=1, released=2, failed=3, lost=4), WorkerStats(processed=10)
    assert one + two == WorkerStats(processed=11, released=2, failed=3, lost=4)
    assert (one.runs, (one + two).runs) == (10, 20)


# The budget of a process


def test_a_budget_grants_what_is_left_and_no_more() -> None:
    budget = Budget(5)
    assert [budget.take(3), budget.take(3), budget.take(3)] == [3, 2, 0]
    assert budget.is_spent
    budget.give_back(1)
    assert not budget.is_spent
    assert budget.take(3) == 1


def test_a_budget_without_a_limit_grants_everything() -> None:
    budget = Budget(None)
    assert budget.take(500) == 500
    assert not budget.is_spent
