"""What a job leaves behind when its store is out of reach, or busy: nothing is lost, and nothing is told twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.stopping import Stopping
from django_jobqueue.running.worker import Worker
from tests.helpers.flaky import complaints, locked, outage
from tests.helpers.listening import Heard
from tests.helpers.notes import note, state
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


# What a job leaves behind


def test_ends_that_could_not_be_stored_are_stored_when_the_store_is_back(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    ids = note(*range(7))
    flaky.fail("settle", *[outage()] * 3)
    stats = simulation.run(make_worker(), waits=8)
    assert done == list(range(7))
    assert stats == WorkerStats(processed=7)
    assert [state(job_id) for job_id in ids] == [None] * 7


def test_a_failure_is_not_lost_with_the_store(
    flaky: Any, make_worker: Make, simulation: Simulation, register: Register, heard: Heard
) -> None:
    @register(max_attempts=1)
    def boom() -> None:
        flaky.go_down()
        raise ValueError("kept")

    job_id = boom.dispatch().id

    def come_back(number: int) -> None:
        if number == 4:
            flaky.come_back()

    stats = simulation.run(make_worker(), waits=10, on_wait=come_back)
    assert stats == WorkerStats(failed=1)
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.errors[0].message) == ("failed", "kept")
    assert len(heard.all("job_failed")) == 1


def test_what_has_not_begun_is_handed_back_when_the_store_is_back(
    flaky: Any, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @register(settle="each", max_attempts=2)
    def work(number: int) -> None:
        seen.append(number)
        if number == 4 and seen.count(4) == 1:
            flaky.go_down()

    ids = [work.dispatch(number).id for number in range(8)]
    states: list[Any] = []

    def come_back(number: int) -> None:
        if number == 2:
            states.extend(driver_state(flaky, job_id) for job_id in ids[5:7])
            flaky.come_back()

    worker = make_worker()
    monkeypatch.setattr(worker._keeper, "watch", lambda: None)
    stats = simulation.run(worker, waits=8, on_wait=come_back)
    assert states == [("reserved", 1)] * 2
    assert seen == list(range(8))
    assert stats == WorkerStats(processed=8)
    assert flaky.sizes() == {}


def driver_state(driver: Driver, job_id: UUID) -> tuple[str, int] | None:
    record = driver.get(job_id)
    return None if record is None else (record.state, record.attempts)


def test_a_stop_during_an_outage_gives_everything_back_once_the_store_is_back(
    flaky: Any, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = Stopping()
    seen: list[int] = []

    @register(settle="each")
    def work(number: int) -> None:
        seen.append(number)
        if number == 4:
            flaky.go_down()
            stopping.ask("SIGTERM")

    ids = [work.dispatch(number).id for number in range(8)]

    def come_back(number: int) -> None:
        if number == 3:
            flaky.come_back()

    worker = make_worker(stopping=stopping, grace=60)
    monkeypatch.setattr(worker._keeper, "watch", lambda: None)
    stats = simulation.run(worker, on_wait=come_back)
    assert stats == WorkerStats(processed=5)
    assert [state(job_id) for job_id in ids] == [*[None] * 5, *[("ready", 0)] * 3]


def test_what_has_not_begun_is_given_back_at_a_stop_though_nothing_waits_to_be_settled(
    flaky: Any, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = Stopping()

    @register()
    def work(number: int) -> None:
        if number == 4:
            stopping.ask("SIGTERM")
            flaky.fail("hand_back", outage(), outage())

    ids = [work.dispatch(number).id for number in range(8)]
    worker = make_worker(stopping=stopping)
    monkeypatch.setattr(worker._keeper, "watch", lambda: None)
    simulation.run(worker)
    assert [state(job_id) for job_id in ids[5:]] == [("ready", 0)] * 3


def test_a_stop_does_not_wait_for_ever_for_a_store(
    flaky: Any,
    make_worker: Make,
    simulation: Simulation,
    register: Register,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopping = Stopping()

    @register()
    def work() -> None:
        flaky.go_down()
        stopping.ask("SIGTERM")

    work.dispatch()
    began = simulation.monotonic()
    assert simulation.run(make_worker(stopping=stopping, grace=20)).runs == 0
    assert simulation.monotonic() - began < 25
    assert "could not be stored: it will be run again" in caplog.text


def test_a_second_ask_does_not_wait_for_the_store(
    flaky: Any, make_worker: Make, simulation: Simulation, register: Register
) -> None:
    """F23"""
    stopping = Stopping()

    @register()
    def work() -> None:
        flaky.go_down()
        stopping.ask("SIGTERM", 15)

    def ask_again(number: int) -> None:
        stopping.ask("SIGTERM", 15)

    work.dispatch()
    simulation.run(make_worker(stopping=stopping, grace=1000), on_wait=ask_again)
    assert len(simulation.pauses) == 1


# "locked"


@pytest.mark.parametrize("method", ["rescue", "queues", "stage", "reserve", "settle", "hand_back"])
def test_a_busy_store_is_no_outage(
    flaky: Any,
    make_worker: Make,
    simulation: Simulation,
    done: list[Any],
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    note(*range(10))
    flaky.fail(method, locked(), locked())
    simulation.run(make_worker(), waits=6)
    assert done == list(range(10))
    assert complaints(caplog) == []
    assert flaky.sizes() == {}


@pytest.mark.parametrize("method", ["queues", "stage", "reserve"])
def test_a_busy_store_is_not_an_empty_one(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any], method: str
) -> None:
    """``--stop-when-empty`` ends when a look found nothing, and not when it could not look."""
    note("a")
    flaky.fail(method, locked(), locked())
    simulation.run(make_worker(stop_when_empty=True))
    assert done == ["a"]


def test_a_store_that_is_down_is_not_an_empty_one(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    note("a")
    flaky.fail("reserve", outage(), outage())
    simulation.run(make_worker(stop_when_empty=True))
    assert done == ["a"]


def test_the_outages_of_a_store_do_not_eat_up_max_jobs(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    note(*range(10))
    flaky.fail("reserve", outage(), locked(), outage())
    simulation.run(make_worker(max_jobs=5))
    assert done == [0, 1, 2, 3, 4]
