"""Waiting for the end of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections as databases
from django.db import transaction

from django_jobqueue import InvalidOption, JobQueueError, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.operations import lookup
from django_jobqueue.operations.lookup import FoundJob
from django_jobqueue.running.worker import Worker

Register = Callable[..., Callable[[Callable[..., Any]], Any]]

LONG = 60


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> list[float]:
    """The pauses that are made; in the third one the worker runs a job."""
    made: list[float] = []

    def pause(seconds: float) -> None:
        made.append(seconds)
        if len(made) == 3:
            worker.work_once()

    monkeypatch.setattr(lookup.time, "sleep", pause)
    return made


def waiting(handler: Any) -> FoundJob:
    job = get_job(handler.dispatch().id)
    assert job is not None
    return job


def test_a_wait_ends_with_the_result(driver: Driver, register: Register, pauses: list[float]) -> None:
    @register(keep_result=3600)
    def work() -> int:
        return 7

    job = waiting(work).wait(LONG)
    assert job is not None
    assert (job.state, job.result, job.has_ended) == ("processed", 7, True)
    assert pauses == [0.02, 0.04, 0.08]


def test_a_wait_ends_with_the_dead_letter(driver: Driver, register: Register, pauses: list[float]) -> None:
    @register(max_attempts=1)
    def work() -> None:
        raise ValueError("no stock")

    job = waiting(work).wait(LONG)
    assert job is not None
    assert (job.state, job.errors[0].message) == ("failed", "no stock")


def test_a_wait_ends_at_once_for_a_job_that_was_cancelled(
    driver: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(keep_result=3600)
    def work() -> None: ...

    made: list[float] = []

    def pause(seconds: float) -> None:
        made.append(seconds)
        assert job.cancel()

    monkeypatch.setattr(lookup.time, "sleep", pause)
    job = waiting(work)
    for _ in range(2):
        ended = job.wait(LONG)
        assert ended is not None
        assert (ended.state, ended.result) == ("cancelled", None)
        assert "was cancelled" in ended.result_error
    assert made == [0.02]


def test_a_wait_for_a_job_that_keeps_nothing_ends_with_none(
    driver: Driver, register: Register, pauses: list[float]
) -> None:
    @register()
    def work() -> None: ...

    assert waiting(work).wait(LONG) is None


def test_a_wait_that_takes_too_long_names_the_job_and_its_state(memory: Driver, register: Register) -> None:
    @register()
    def work() -> None: ...

    job = waiting(work)
    with pytest.raises(TimeoutError, match=rf"'tests\.work' {job.id} is still ready after 0.05 s"):
        job.wait(0.05)
    assert get_job(job.id) is not None


def test_pauses_grow_to_a_second_and_no_further(
    memory: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []
    moments = iter(range(10_000))
    monkeypatch.setattr(lookup.time, "sleep", made.append)
    monkeypatch.setattr(lookup.time, "monotonic", lambda: float(next(moments)))

    @register()
    def work() -> None: ...

    with pytest.raises(TimeoutError):
        waiting(work).wait(10)
    assert made == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_a_wait_inside_a_transaction_of_the_jobs_database_is_refused(database: Driver, register: Register) -> None:
    @register()
    def work() -> None: ...

    with transaction.atomic():
        job = waiting(work)
        with pytest.raises(JobQueueError, match="inside a transaction of its database 'default'"):
            job.wait(LONG)


@pytest.mark.parametrize("wrong", [-1, "soon", None, True])
def test_a_timeout_that_is_no_duration_is_refused(memory: Driver, register: Register, wrong: Any) -> None:
    @register()
    def work() -> None: ...

    with pytest.raises(InvalidOption, match="timeout"):
        waiting(work).wait(wrong)
    assert not any(database.in_atomic_block for database in databases.all())
