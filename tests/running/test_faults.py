"""Whatever a job does, its worker goes on, and every attempt is counted as it should be."""

from __future__ import annotations

import gc
import socket
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.errors import MAX_MESSAGE, MAX_TRACEBACK
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.errors import ERRORS, Load
from tests.helpers.notes import failed, run_all

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


# What a handler may raise


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_whatever_is_raised_fails_the_job_and_the_next_one_runs(
    driver: Driver, worker: Worker, clock: Clock, register: Register, error: BaseException, kind: str
) -> None:
    """F25"""
    seen = []

    if kind == "async":

        @register(max_attempts=1)
        async def boom() -> None:
            raise error

    else:

        @register(max_attempts=1)
        def boom() -> None:
            raise error

    @register()
    def normal() -> None:
        seen.append("ran")

    job_id = boom.dispatch().id
    normal.dispatch()
    run_all(worker, clock)
    assert failed(job_id).errors[0].exception_class.endswith(type(error).__name__)
    assert seen == ["ran"]
    assert (worker.stats.processed, worker.stats.failed) == (1, 1)


def test_a_backoff_that_leaves_does_not_end_the_worker(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    def leave(error: BaseException, attempt: int) -> float:
        sys.exit(3)

    @register(max_attempts=2, backoff=leave)
    def boom() -> None:
        raise ValueError

    job_id = boom.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert job.state == "scheduled"


def recurse() -> None:
    recurse()


def raise_chain() -> None:
    error: Exception = ValueError("first")
    for number in range(3000):
        following = ValueError(f"link {number}")
        following.__cause__ = error
        error = following
    raise error


def raise_group() -> None:
    raise ExceptionGroup("many", [ValueError(f"member {number}") for number in range(1000)])


def raise_nested_groups() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(500):
        error = ExceptionGroup("nested", [error])
    raise error


def raise_huge() -> None:
    raise ValueError("x" * 10_000_000)


def raise_strange_text() -> None:
    raise ValueError("a\x00b \ud800 \U0001f600 \u2028 \x1b[31m")


@pytest.mark.parametrize(
    "body", [recurse, raise_chain, raise_group, raise_nested_groups, raise_huge, raise_strange_text]
)
def test_an_error_of_any_size_and_text_is_kept_within_bounds(
    driver: Driver, worker: Worker, clock: Clock, register: Register, body: Callable[[], None]
) -> None:
    """F62"""

    @register(max_attempts=1)
    def boom() -> None:
        body()

    job_id = boom.dispatch().id
    run_all(worker, clock)
    (record,) = failed(job_id).errors
    assert record.exception_class.endswith(("Error", "Group"))
    assert len(record.message) <= MAX_MESSAGE
    assert 0 < len(record.traceback) <= MAX_TRACEBACK


# What a handler may return


class Unrepresentable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value",
    [Unrepresentable(), (number for number in range(3)), "x" * 50_000_000, socket.socket],
    ids=["no repr", "generator", "50 MB", "socket"],
)
def test_a_return_value_of_any_kind_is_success(
    driver: Driver, worker: Worker, clock: Clock, register: Register, value: Any
) -> None:
    """F43"""

    @register(max_attempts=1)
    def work() -> Any:
        return value() if value is socket.socket else value

    @register(name="tests.closing", max_attempts=1)
    def closing() -> Any:
        with socket.socket() as opened:
            return opened

    job_id = (closing if value is socket.socket else work).dispatch().id
    run_all(worker, clock)
    assert get_job(job_id) is None
    assert worker.stats.processed == 1


# Memory


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_failed_job_keeps_none_of_its_objects_alive(
    driver: Driver, worker: Worker, clock: Clock, register: Register, kind: str
) -> None:
    """F58"""
    watched: list[weakref.ref[Load]] = []
    alive = []

    def body() -> None:
        alive.append([reference() for reference in watched if reference() is not None])
        load = Load()
        watched.append(weakref.ref(load))
        raise ValueError("with a local")

    if kind == "async":

        @register(max_attempts=1)
        async def boom() -> None:
            body()

    else:

        @register(max_attempts=1)
        def boom() -> None:
            body()

    for _ in range(3):
        boom.dispatch()
    gc.collect()
    gc.disable()
    try:
        run_all(worker, clock)
    finally:
        gc.enable()
    assert alive == [[], [], []]


def test_a_finished_job_keeps_none_of_its_objects_alive(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    watched: list[weakref.ref[Load]] = []
    alive = []

    @register()
    def work() -> Any:
        alive.append([reference() for reference in watched if reference() is not None])
        load = Load()
        watched.append(weakref.ref(load))
        return load

    for _ in range(3):
        work.dispatch()
    gc.disable()
    try:
        run_all(worker, clock)
    finally:
        gc.enable()
    assert alive == [[], [], []]


# Arguments


def test_every_attempt_gets_the_arguments_as_they_were_dispatched(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F41"""
    seen = []

    @register(max_attempts=3, backoff=0)
    def work(items: list[int], options: dict[str, int]) -> None:
        seen.append((list(items), dict(options)))
        items.append(1)
        options["n"] = 1
        raise ValueError

    job_id = work.dispatch([0], {}).id
    before = driver.get(job_id)
    run_all(worker, clock)
    after = driver.get(job_id)
    assert seen == [([0], {})] * 3
    assert before is not None
    assert after is not None
    assert before.payload == after.payload


def test_a_row_that_is_gone_when_the_job_runs_is_an_ordinary_failure(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F40"""

    @register(max_attempts=1)
    def work(pk: int) -> None:
        Group.objects.get(pk=pk)

    group = Group.objects.create(name="gone")
    job_id = work.dispatch(group.pk).id
    group.delete()
    run_all(worker, clock)
    assert failed(job_id).errors[0].exception_class.endswith("DoesNotExist")
    assert database.retry({database.last_failed_number(): None})
    run_all(worker, clock)
    assert database.forget([database.last_failed_number()])


# The store's row


def test_an_end_that_the_store_refuses_for_good_is_lost_and_rescued(
    memory: Driver, worker: Worker, clock: Clock, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(max_attempts=3)
    def work() -> None: ...

    job_id = work.dispatch().id
    settle = memory.settle

    def refuse(settlements: Any, **given: Any) -> Any:
        raise ValueError("cannot be stored")

    monkeypatch.setattr(memory, "settle", refuse)
    worker.work_once(now=clock.now)
    monkeypatch.setattr(memory, "settle", settle)
    assert worker.stats.lost == 1
    job = get_job(job_id)
    assert job is not None
    assert job.state == "reserved"
    run_all(worker, clock)
    assert worker.work_once(now=clock.tick(91))
    assert get_job(job_id) is None


def test_the_database_holds_no_job_longer_than_it_must(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    from django_jobqueue.models import FailedJob, Job

    @register()
    def work() -> None: ...

    for _ in range(3):
        work.dispatch()
    database.push([NewJob(id=new_job_id(), name="tests.work", queue="q", payload='{"args":[],"kwargs":{}}', format=1)])
    run_all(worker, clock)
    assert (Job.objects.count(), FailedJob.objects.count()) == (0, 0)
    assert not connection.in_atomic_block
