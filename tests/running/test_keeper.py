"""What must happen while a handler runs: hand back, settle, renew, and give up at the end of the grace time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue import current_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.running import keeper
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.worker import Worker
from tests.helpers.fixtures import FLAKY
from tests.helpers.gates import Gate, Started, look
from tests.helpers.listening import Heard
from tests.helpers.notes import state
from tests.helpers.simulation import Simulation
from tests.helpers.slow import BATCHES, reserved_until, work
from tests.helpers.waiting import DEADLINE, wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]
Start = Callable[..., Started]


# Handing back, and settling what has ended


def test_no_job_waits_behind_a_slow_one(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any]
) -> None:
    ids = work(*BATCHES)
    running = start(make_worker(stop_when_empty=True))
    gate.wait_until_entered()
    wait_until(lambda: state(ids[6]) == ("ready", 0), "what has not begun is handed back")
    assert state(ids[5]) == ("ready", 0)
    second = make_worker(stop_when_empty=True).run()
    assert second == WorkerStats(processed=2)
    assert held == [0, 1, 2, 3, "slow", 5, 6]
    assert state(ids[4]) == ("reserved", 1)
    gate.open()
    assert running.end() == WorkerStats(processed=5)


def test_what_has_ended_is_settled_while_a_slow_job_runs(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any]
) -> None:
    ids = work(*BATCHES)
    start(make_worker())
    gate.wait_until_entered()
    wait_until(lambda: state(ids[3]) is None, "the first of the batch is settled")


def test_a_single_job_keeps_its_place_in_hand_however_long_it_takes(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], simulation: Simulation
) -> None:
    (job_id,) = work("slow")
    worker = make_worker()
    start(worker)
    gate.wait_until_entered()
    simulation.advance(20)
    worker._keeper._waiter.wake()
    wait_until(lambda: worker._keeper._waiter._wakes.empty(), "the keeper looks")
    assert state(job_id) == ("reserved", 1)


def test_news_does_not_heap_up_in_the_server_while_a_job_runs(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any]
) -> None:
    class Ear:
        drained = threading.Event()

        def begin(self) -> None: ...
        def hear(self) -> None: ...
        def end(self) -> None: ...

        def drain(self) -> None:
            self.drained.set()

    driver.ear = Ear()
    work("slow")
    start(make_worker())
    gate.wait_until_entered()
    assert Ear.drained.wait(DEADLINE)


def test_batches_that_follow_each_other_need_not_wake_it(
    driver: Driver, make_worker: Make, start: Start, held: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "AWAKE_SECONDS", DEADLINE)
    (job_id,) = work("quick")
    worker = make_worker()
    running = start(worker)
    wait_until(lambda: state(job_id) is None, "it is settled")
    wait_until(lambda: not worker._keeper._idle and not worker._hand.held(), "the keeper goes on looking")
    worker.stopping.ask("the end")
    running.end()


# Renewing


def test_a_job_that_outlasts_its_reservation_keeps_it(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], simulation: Simulation
) -> None:
    """F13"""
    (job_id,) = work("slow")
    worker = make_worker(retry_after=90)
    running = start(worker)
    gate.wait_until_entered()
    for _ in range(3):
        before = reserved_until(driver, job_id)
        simulation.advance(31)
        look(worker)
        wait_until(lambda before=before: reserved_until(driver, job_id) > before, "the reservation is renewed")
    assert not make_worker().work_once()
    gate.open()
    worker.stopping.ask("end")
    assert running.end() == WorkerStats(processed=1)
    assert held == ["slow"]


def test_a_reservation_is_not_renewed_before_a_third_of_it(
    memory: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], simulation: Simulation
) -> None:
    renewed = []
    renew = memory.renew
    memory.renew = lambda *given, **options: renewed.append(1) or renew(*given, **options)  # type: ignore[method-assign,func-returns-value]
    work("slow")
    worker = make_worker(retry_after=90)
    start(worker)
    gate.wait_until_entered()
    simulation.advance(25)
    look(worker)
    wait_until(lambda: worker._keeper._renew_at, "the keeper has looked")
    assert renewed == []
    simulation.advance(7)
    look(worker)
    wait_until(lambda: renewed, "it is renewed")


def test_a_stopping_worker_renews_until_its_last_job_has_ended(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], simulation: Simulation
) -> None:
    """F24"""
    (job_id,) = work("slow")
    worker = make_worker(retry_after=90, grace=1000)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("end")
    before = reserved_until(driver, job_id)
    simulation.advance(31)
    look(worker)
    wait_until(lambda: reserved_until(driver, job_id) > before, "the reservation is renewed")
    gate.open()
    assert running.end() == WorkerStats(processed=1)


def test_a_job_whose_reservation_was_lost_is_told_and_cannot_end_anything(
    driver: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    register: Register,
    simulation: Simulation,
    heard: Heard,
) -> None:
    told = []

    @register()
    def work() -> None:
        gate.pass_through()
        told.append(current_job().should_stop())  # type: ignore[union-attr]

    job_id = work.dispatch().id
    worker = make_worker(retry_after=90, max_jobs=1)
    running = start(worker)
    gate.wait_until_entered()
    assert driver.rescue(max_attempts=3, now=datetime.now(UTC) + timedelta(days=1))
    simulation.advance(31)
    look(worker)
    wait_until(lambda: worker._desk._lost, "the keeper has heard of the loss")
    gate.open()
    assert running.end() == WorkerStats(lost=1)
    assert told == [True]
    sent = heard.one("job_lost")
    assert (sent["id"], sent["attempt"], sent["max_attempts"]) == (job_id, 1, 3)
    assert sent["elapsed"] >= 31
    assert state(job_id) == ("ready", 1)


def test_one_store_out_of_reach_does_not_cost_another_its_reservations(
    settings: Any, make_worker: Make, start: Start, gate: Gate, register: Register, simulation: Simulation
) -> None:
    """The keeper renews each on its own."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}, "other": {"DRIVER": "memory"}}}
    flaky: Any = connections["default"]
    other = connections["other"]

    @register()
    def cut() -> None:
        flaky.go_down()

    @register()
    def slow() -> None:
        gate.pass_through()

    cut.dispatch()
    worker = make_worker(retry_after=90)
    start(worker)
    wait_until(lambda: worker._desk.held(), "an end waits for its store")
    job_id = slow.using(connection="other").dispatch().id
    gate.wait_until_entered()
    before = reserved_until(other, job_id)
    simulation.advance(31)
    look(worker)
    try:
        wait_until(lambda: reserved_until(other, job_id) > before, "the job on the other store is renewed", seconds=10)
    finally:
        flaky.come_back()


def test_a_keeper_that_met_an_unknown_error_looks_again(
    settings: Any, make_worker: Make, start: Start, gate: Gate, register: Register, simulation: Simulation, caplog: Any
) -> None:
    """Else every later job of its worker that takes long would run twice."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": FLAKY}}}
    flaky: Any = connections["default"]
    gates = [Gate(), Gate()]

    @register()
    def slow(number: int) -> None:
        gates[number].pass_through()

    slow.dispatch(0)
    flaky.fail("renew", ValueError("not an outage"))
    worker = make_worker(retry_after=90)
    start(worker)
    try:
        gates[0].wait_until_entered()
        simulation.advance(31)
        look(worker)
        wait_until(lambda: "The keeper of a worker failed" in caplog.text, "the keeper has failed")
        gates[0].open()
        job_id = slow.dispatch(1).id
        gates[1].wait_until_entered()
        before = reserved_until(flaky, job_id)
        simulation.advance(61)
        look(worker)
        wait_until(lambda: reserved_until(flaky, job_id) > before, "the next job is renewed", seconds=10)
    finally:
        for one in gates:
            one.open()


# The thread


def test_the_keeper_ends_with_its_worker(
    driver: Driver, make_worker: Make, held: list[Any], simulation: Simulation
) -> None:
    work(1, 2, 3)
    simulation.run(make_worker(stop_when_empty=True))
    assert [thread for thread in threading.enumerate() if thread.name == "jobqueue-keeper"] == []


def test_a_worker_that_finds_nothing_has_no_keeper(driver: Driver, make_worker: Make, simulation: Simulation) -> None:
    worker = make_worker()
    simulation.run(worker, waits=3)
    assert worker._keeper._thread is None
