"""Whether a worker does its work, as its health file tells; and what may be wrong with that file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue.drivers import Driver
from django_jobqueue.running.health import HealthFile
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.pool import Pool
from django_jobqueue.running.timeouts import LAST_SECONDS
from django_jobqueue.running.worker import PATIENCE, Worker
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def test_a_loop_that_turns_is_well_and_one_that_does_not_is_not(
    memory: Driver, make_worker: Callable[..., Worker], simulation: Simulation
) -> None:
    worker = make_worker(sleep=5, error_backoff_cap=20)
    simulation.run(worker, waits=3)
    assert worker.is_well
    simulation.advance(20 + PATIENCE + 1)
    assert not worker.is_well


def test_a_loop_is_well_at_a_long_job_until_its_time_is_over(
    memory: Driver, register: Register, make_worker: Callable[..., Worker], simulation: Simulation
) -> None:
    seen: list[bool] = []
    worker = make_worker()

    @register(timeout=1000)
    def work() -> None:
        simulation.advance(900)
        seen.append(worker.is_well)
        seen.append(worker._limit.is_overdue(worker._limit._deadline - 1))  # type: ignore[operator]
        seen.append(worker._limit.is_overdue(worker._limit._deadline + LAST_SECONDS))  # type: ignore[operator]

    work.dispatch()
    simulation.run(worker, waits=3)
    assert seen == [True, False, True]


def test_a_job_without_a_limit_is_well_for_ever(
    memory: Driver, register: Register, make_worker: Callable[..., Worker], simulation: Simulation
) -> None:
    seen: list[bool] = []
    worker = make_worker()

    @register(timeout=None)
    def work() -> None:
        simulation.advance(1e6)
        seen.append(worker.is_well)

    work.dispatch()
    simulation.run(worker, waits=3)
    assert seen == [True]


def test_a_process_is_well_when_all_its_loops_are(memory: Driver) -> None:
    pool = Pool(WorkerOptions(workers=2))
    loops = [Worker(pool.options), Worker(pool.options)]
    pool._running = set(loops)
    assert pool.is_well
    loops[1]._turned_at -= 1000
    assert not pool.is_well
    for loop in loops:
        loop._keeper.end()


def test_a_file_that_the_disk_refuses_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    health = HealthFile(tmp_path / "absent" / "health")
    for _ in range(3):
        health.touch()
    health.remove()
    (record,) = caplog.records
    assert (record.event, record.levelname) == ("health_file_refused", "ERROR")  # type: ignore[attr-defined]


def test_nobody_needs_a_health_file() -> None:
    health = HealthFile(None)
    health.touch()
    health.remove()
