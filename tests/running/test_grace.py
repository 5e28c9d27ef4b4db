"""Shutdown: jobs in hand may finish within the grace time; what does not is released, and no attempt is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.stopping import Stopping
from django_jobqueue.running.worker import Worker
from tests.helpers.gates import Abandoned, Gate, Started, look
from tests.helpers.listening import Heard
from tests.helpers.notes import state
from tests.helpers.simulation import Simulation
from tests.helpers.slow import BATCHES, work
from tests.helpers.waiting import wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]
Start = Callable[..., Started]


def test_a_job_that_does_not_finish_within_the_grace_time_is_released_without_an_attempt(
    driver: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    held: list[Any],
    simulation: Simulation,
    abandoned: Abandoned,
    heard: Heard,
) -> None:
    (job_id,) = work("slow")
    worker = make_worker(grace=30, on_abandoned=abandoned)
    start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGTERM")
    simulation.advance(20)
    look(worker)
    assert state(job_id) == ("reserved", 1)
    assert not abandoned.is_told
    simulation.advance(11)
    look(worker)
    abandoned.wait()
    assert state(job_id) == ("ready", 0)
    wait_until(lambda: heard.all("job_released"), "the release is announced")
    assert (heard.one("job_released")["id"], heard.one("job_released")["delay"]) == (job_id, 0)


def test_a_second_ask_releases_the_job_in_hand_at_once(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], abandoned: Abandoned
) -> None:
    """F22"""
    (job_id,) = work("slow")
    worker = make_worker(grace=1000, on_abandoned=abandoned)
    start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGTERM", 15)
    worker.stopping.ask("SIGTERM", 15)
    abandoned.wait()
    assert state(job_id) == ("ready", 0)


def test_a_job_with_one_attempt_that_was_started_is_failed_and_not_started_again(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, register: Register, abandoned: Abandoned, heard: Heard
) -> None:
    @register(max_attempts=1)
    def once() -> None:
        gate.pass_through()

    job_id = once.dispatch().id
    worker = make_worker(on_abandoned=abandoned)
    start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGQUIT", 3, now=True)
    abandoned.wait()
    assert state(job_id) == ("failed", 1)
    wait_until(lambda: heard.all("job_failed"), "the failure is announced")
    assert heard.one("job_failed")["dead_lettered"] is True
    job = get_job(job_id)
    assert job is not None
    assert "had to stop before this job ended" in job.errors[0].message


def test_a_job_without_a_limit_of_its_own_has_the_workers_at_the_end_of_grace_too(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], abandoned: Abandoned
) -> None:
    (job_id,) = work("slow")
    worker = make_worker(max_attempts=1, on_abandoned=abandoned)
    start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("now", now=True)
    abandoned.wait()
    assert state(job_id) == ("failed", 1)


def test_the_handler_that_was_given_up_can_end_nothing_any_more(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], abandoned: Abandoned, heard: Heard
) -> None:
    (job_id,) = work("slow")
    worker = make_worker(on_abandoned=abandoned)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("now", now=True)
    abandoned.wait()
    gate.open()
    stats = running.end()
    assert state(job_id) == ("ready", 0)
    assert stats.processed == 0
    assert "job_processed" not in heard.names()


def test_an_atomic_job_that_does_not_finish_is_released_too_and_its_effects_are_undone(
    database: Driver, make_worker: Make, start: Start, gate: Gate, register: Register, abandoned: Abandoned
) -> None:
    """Its row is locked by its own transaction, so that this must end first."""
    if connection.vendor == "sqlite":
        pytest.skip("the transaction of an atomic job holds the only lock, and no other thread can end it")

    @register(atomic=True)
    def slow() -> None:
        Group.objects.create(name="effect")
        gate.pass_through()

    job_id = slow.dispatch().id
    worker = make_worker(on_abandoned=abandoned)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("now", now=True)
    abandoned.wait()
    assert state(job_id) == ("ready", 0)
    gate.open()
    assert running.end().processed == 0
    assert not Group.objects.exists()


def test_where_an_atomic_job_holds_the_only_lock_nobody_waits_for_it(
    database: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    register: Register,
    abandoned: Abandoned,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F22: the process goes at once; its transaction is undone then, and the job is rescued."""
    if connection.vendor != "sqlite":
        pytest.skip("has sessions that can be ended")

    @register(atomic=True)
    def slow() -> None:
        gate.pass_through()

    job_id = slow.dispatch().id
    worker = make_worker(on_abandoned=abandoned)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("now", now=True)
    abandoned.wait()
    assert state(job_id) == ("reserved", 1)
    assert f"The job {job_id} could not be released; it is rescued" in caplog.text
    gate.open()
    assert running.end().processed == 1


def test_a_grace_of_zero_has_no_end(
    memory: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    held: list[Any],
    simulation: Simulation,
    abandoned: Abandoned,
) -> None:
    work("slow")
    worker = make_worker(grace=0, on_abandoned=abandoned)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGTERM")
    simulation.advance(100_000)
    look(worker)
    gate.open()
    assert running.end() == WorkerStats(processed=1)
    assert not abandoned.is_told


def test_a_job_that_finishes_within_the_grace_time_is_done(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any], abandoned: Abandoned
) -> None:
    """F22"""
    (job_id,) = work("slow")
    worker = make_worker(grace=30, on_abandoned=abandoned)
    running = start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGTERM", 15)
    gate.open()
    assert running.end() == WorkerStats(processed=1)
    assert state(job_id) is None
    assert not abandoned.is_told


def test_what_has_not_begun_is_handed_back_at_the_first_ask(
    driver: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any]
) -> None:
    ids = work(*BATCHES)
    worker = make_worker(grace=1000)
    start(worker)
    gate.wait_until_entered()
    worker.stopping.ask("SIGTERM", 15)
    wait_until(lambda: [state(job_id) for job_id in ids[5:]] == [("ready", 0)] * 2, "they are handed back")
    assert state(ids[4]) == ("reserved", 1)


def test_a_stop_of_a_shared_wish_is_heard_by_every_keeper(
    memory: Driver, make_worker: Make, start: Start, gate: Gate, held: list[Any]
) -> None:
    stopping, told = Stopping(), [Abandoned(), Abandoned()]
    work("slow", "slow")
    for one in told:
        start(make_worker(stopping=stopping, on_abandoned=one))
    wait_until(lambda: len(held) == 2, "both jobs run")
    stopping.ask("now", now=True)
    for one in told:
        one.wait()
