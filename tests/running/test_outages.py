"""A store that is out of reach: the loop goes on, says so once, tries again with growing pauses, and loses nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError, connection

from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.outages import StoreHealth
from django_jobqueue.running.worker import Worker
from tests.helpers.flaky import LOST_AND_BACK, FlakyDriver, complaints, outage
from tests.helpers.listening import Heard
from tests.helpers.notes import note, state
from tests.helpers.simulation import Simulation
from tests.helpers.threads import in_threads

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]


# The loop


def test_an_outage_is_said_once_and_its_end_once(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """F30"""
    flaky.go_down()

    def come_back(number: int) -> None:
        if number == 5:
            flaky.come_back()
            note("a")

    simulation.run(make_worker(), waits=10, on_wait=come_back)
    assert done == ["a"]
    assert complaints(caplog) == LOST_AND_BACK
    lost, back = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert lost.getMessage() == "store 'default' is not reachable: server closed the connection"
    assert lost.connection == "default"  # type: ignore[attr-defined]
    assert back.getMessage().startswith("store 'default' is back after ")


def test_the_pauses_double_up_to_the_cap(flaky: Any, make_worker: Make, simulation: Simulation) -> None:
    """F30"""
    flaky.go_down()
    simulation.run(make_worker(sleep=0.5, error_backoff_cap=30), waits=12)
    pauses = [pause for pause in simulation.pauses if pause is not None]
    for pause, expected in zip(pauses, [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30], strict=False):
        assert pause == pytest.approx(expected, abs=0.2)
    assert flaky.calls.total() <= 3 * 12


def test_no_pause_is_longer_than_the_cap(flaky: Any, make_worker: Make, simulation: Simulation) -> None:
    """Not even the first, where the poll interval is longer."""
    flaky.go_down()
    health = StoreHealth(flaky, 60, 30)
    with health.reaching():
        raise outage()
    assert health.seconds_to_next_try() <= 30


def test_an_outage_closes_the_connection_so_that_the_next_try_opens_another(flaky: Any) -> None:
    health = StoreHealth(flaky, 1, 30)
    with health.reaching():
        raise outage()
    assert (flaky.closed, health.is_down, health.may_try) == (1, True, False)


def test_what_is_no_outage_is_raised(flaky: Any) -> None:
    health = StoreHealth(flaky, 1, 30)
    with pytest.raises(ValueError, match="mistake"), health.reaching():
        raise ValueError("a mistake")
    assert not health.is_down


def test_after_an_outage_the_pauses_begin_small_again(flaky: Any, simulation: Simulation) -> None:
    health = StoreHealth(flaky, 1, 30)
    for _ in range(5):
        with health.reaching():
            raise outage()
    assert health.seconds_to_next_try() > 10
    simulation.advance(100)
    assert health.may_try
    with health.reaching():
        pass
    health.end_turn()
    assert not health.is_down
    with health.reaching():
        raise outage()
    assert health.seconds_to_next_try() <= 1


def test_a_store_that_reads_and_does_not_write_is_not_back(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As in a failover: it is said once, and the pauses grow, although some calls go well."""
    flaky.fail("reserve", *[outage()] * 8)
    note("a")
    simulation.run(make_worker(sleep=0.5), waits=15)
    assert done == ["a"]
    assert complaints(caplog) == LOST_AND_BACK
    assert max(pause for pause in simulation.pauses if pause is not None) > 20


@pytest.mark.parametrize("method", ["queues", "stage", "reserve", "settle"])
def test_an_outage_in_any_call_loses_nothing_and_ends_nothing(
    flaky: Any,
    make_worker: Make,
    simulation: Simulation,
    done: list[Any],
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    note(*range(20))
    flaky.fail(method, outage(), outage(), outage())
    stats = simulation.run(make_worker(), waits=12)
    assert done == list(range(20))
    assert (stats.processed, stats.runs) == (20, 20)
    assert flaky.sizes() == {}
    assert complaints(caplog) == LOST_AND_BACK


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed"), ProgrammingError("no table")])
def test_what_the_database_calls_an_outage_ends_no_loop(
    database: Driver,
    make_worker: Make,
    simulation: Simulation,
    done: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """F68: a missing table too, later in life."""
    planned = [error]
    stage = database.stage

    def fail_once(queue: str, **given: Any) -> int:
        if planned:
            raise planned.pop()
        return stage(queue, **given)

    monkeypatch.setattr(database, "stage", fail_once)
    note("a")
    simulation.run(make_worker(), waits=5)
    assert done == ["a"]


def test_a_session_that_ended_while_the_worker_was_idle_costs_no_attempt(
    database: Driver,
    make_worker: Make,
    simulation: Simulation,
    done: list[Any],
    caplog: pytest.LogCaptureFixture,
    heard: Heard,
) -> None:
    """F27"""
    if connection.vendor == "sqlite":
        pytest.skip("has no sessions that could end")

    def end_session(number: int) -> None:
        if number == 3:
            session = database.session()
            in_threads(1, lambda _: database.end_session(session))
            in_threads(1, lambda _: note("a"))

    simulation.run(make_worker(), waits=8, on_wait=end_session)
    assert done == ["a"]
    assert heard.one("job_starting")["attempt"] == 1
    assert len(complaints(caplog)) <= 1


# Two stores


def test_one_store_out_of_reach_does_not_stop_the_work_on_another(
    two: Any, make_worker: Make, simulation: Simulation, done: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    note("waits")
    note(*range(10), connection="other")
    two.go_down()
    simulation.run(make_worker(), waits=3)
    assert done == list(range(10))
    assert complaints(caplog) == [("ERROR", "store_lost")]


def test_ends_that_wait_for_one_store_do_not_keep_those_of_another(
    two: Any, make_worker: Make, simulation: Simulation, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    @register()
    def cut() -> None:
        two.go_down()

    @register()
    def work() -> None: ...

    cut.dispatch()
    worker = make_worker(grace=1)
    ids: list[UUID] = []

    def look(number: int) -> None:
        if number == 1:
            ids.extend(work.using(connection="other").dispatch().id for _ in range(5))
        if number == 4:
            two.come_back()

    stats = simulation.run(worker, waits=8, on_wait=look)
    assert stats == WorkerStats(processed=6)
    assert "store 'other'" not in caplog.text


def test_what_one_store_did_not_take_back_is_not_run_on_another(
    two: Any, make_worker: Make, simulation: Simulation, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, bool]] = []

    @register(settle="each")
    def work(number: int, queue_connection: str) -> None:
        seen.append((queue_connection, number, is_down[0]))
        if (queue_connection, number) == ("default", 4):
            two.go_down()
            is_down[0] = True

    is_down = [False]
    for number in range(8):
        work.dispatch(number, "default")
    worker = make_worker()
    monkeypatch.setattr(worker._keeper, "watch", lambda: None)

    def look(number: int) -> None:
        if number == 1:
            for value in range(3):
                work.using(connection="other").dispatch(value, "other")
        if number == 4:
            two.come_back()
            is_down[0] = False

    simulation.run(worker, waits=10, on_wait=look)
    assert len(seen) == 11
    assert [job for job in seen if job[2] and job[0] == "default"] == []
    assert two.sizes() == connections["other"].sizes() == {}


# work_once


def test_work_once_raises_the_outages_of_its_store(flaky: Any, worker: Worker, done: list[Any]) -> None:
    note("a")
    flaky.fail("reserve", outage())
    with pytest.raises(OperationalError):
        worker.work_once()
    assert worker.work_once()
    assert done == ["a"]


def test_an_end_that_work_once_could_not_store_is_stored_by_the_next_call(
    flaky: Any, worker: Worker, done: list[Any]
) -> None:
    (job_id,) = note("a")
    flaky.fail("settle", outage())
    with pytest.raises(OperationalError):
        worker.work_once()
    worker.work_once()
    assert state(job_id) is None
    assert done == ["a"]


def test_the_flaky_store_is_one(flaky: FlakyDriver) -> None:
    """What these tests rest on."""
    flaky.fail("reserve", outage())
    limit = ReserveLimit(rows=1, max_attempts=1)
    with pytest.raises(OperationalError):
        flaky.reserve("default", "w", limit, retry_after=1)
    assert flaky.reserve("default", "w", limit, retry_after=1).jobs == []
    assert flaky.calls["reserve"] == 2


def test_an_outage_of_a_rescue_ends_nothing(
    flaky: Any, make_worker: Make, simulation: Simulation, done: list[Any]
) -> None:
    note("a")
    flaky.fail("rescue", outage(), outage(), outage())
    simulation.run(make_worker(), waits=12)
    assert done == ["a"]
