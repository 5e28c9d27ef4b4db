"""Whatever a job does, its worker goes on, and every attempt is counted as it should be."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import F

from django_jobqueue import Exponential, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.errors import MAX_MESSAGE, MAX_TRACEBACK
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


class Unusual(BaseException):
    """No Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def run_all(worker: Worker, clock: Clock) -> None:
    while worker.work_once(now=clock.tick()):
        pass


def failed(job_id: Any) -> Any:
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"
    return job


# What a handler may raise


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), Unusual(), Unprintable(), Leaving()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["plain", "async", "atomic"])
def test_whatever_is_raised_fails_the_job_and_the_next_one_runs(
    driver: Driver, worker: Worker, clock: Clock, register: Register, error: BaseException, kind: str
) -> None:
    """F25"""
    if kind == "atomic" and not driver.supports_transactions:
        pytest.skip("no transactions")
    seen = []

    if kind == "async":

        @register(max_attempts=1)
        async def boom() -> None:
            raise error

    else:

        @register(max_attempts=1, atomic=kind == "atomic")
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


@pytest.mark.parametrize("body", [recurse, raise_chain, raise_group, raise_nested_groups, raise_huge, raise_strange_text])
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


class Load:
    """Something that a weak reference can watch."""


@pytest.mark.parametrize("kind", ["plain", "atomic", "async"])
def test_a_failed_job_keeps_none_of_its_objects_alive(
    driver: Driver, worker: Worker, clock: Clock, register: Register, kind: str
) -> None:
    """F58"""
    if kind == "atomic" and not driver.supports_transactions:
        pytest.skip("no transactions")
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

        @register(max_attempts=1, atomic=kind == "atomic")
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


# The number of attempts


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_job_is_started_exactly_as_often_as_it_may(
    driver: Driver, worker: Worker, clock: Clock, register: Register, attempts: int
) -> None:
    """F51"""
    seen = []

    @register(max_attempts=attempts, backoff=0)
    def boom() -> None:
        seen.append(1)
        raise ValueError

    job_id = boom.dispatch().id
    run_all(worker, clock)
    assert len(seen) == attempts
    assert failed(job_id).attempts == attempts
    assert len(failed(job_id).errors) == attempts


def test_a_worker_that_is_lost_with_the_only_attempt_leaves_a_dead_letter(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F51"""
    seen = []

    @register(max_attempts=1)
    def work() -> None:
        seen.append(1)

    job_id = work.dispatch().id
    reserve_and_die(driver, clock)
    assert not worker.work_once(now=clock.tick(91))
    assert seen == []
    assert "Reserved once without finishing" in failed(job_id).errors[0].message


def reserve_and_die(driver: Driver, clock: Clock) -> None:
    """What a worker leaves that was killed with one job in hand."""
    from django_jobqueue.jobs.records import ReserveLimit

    (_,) = driver.reserve(
        "default", "killed", ReserveLimit(rows=1, max_attempts=3), retry_after=90, now=clock.now
    ).jobs


def test_a_job_that_kills_its_worker_is_started_as_often_as_it_may_and_no_more(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F18"""

    @register(max_attempts=3)
    def work() -> None:
        raise AssertionError

    job_id = work.dispatch().id
    for _ in range(3):
        reserve_and_die(driver, clock)
        clock.tick(91)
        driver.rescue(max_attempts=3, now=clock.now)
    assert not worker.work_once(now=clock.tick())
    job = failed(job_id)
    assert job.attempts == 3
    assert "Reserved 3 times without finishing" in job.errors[-1].message


def test_a_delayed_job_is_not_taken_for_abandoned(
    driver: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register
) -> None:
    """F12: a reservation lasts from the reserve on, not from the dispatch."""
    seen = []

    @register()
    def work() -> None:
        seen.append(1)
        assert not other.work_once(now=clock.tick(1))

    worker, other = make_worker(retry_after=2), make_worker(retry_after=2)
    work.using(delay=300).dispatch()
    assert not worker.work_once(now=clock.now)
    assert worker.work_once(now=clock.tick(300))
    assert seen == [1]


# Backoff


@pytest.mark.parametrize("attempts", [1, 10, 35, 43, 100, 1024, 5000])
def test_exponential_backoff_holds_its_cap_for_every_attempt(
    database: Driver, worker: Worker, clock: Clock, register: Register, heard: Any, attempts: int
) -> None:
    """F50"""
    from django_jobqueue.models import Job

    @register(max_attempts=10_000, backoff=Exponential(base=10, cap=3600, jitter=0))
    def boom() -> None:
        raise ValueError

    boom.dispatch()
    Job.objects.update(attempts=F("attempts") + attempts - 1)
    worker.work_once(now=clock.now)
    delay = heard.one("job_failed")["delay"]
    assert delay == (10 if attempts == 1 else 3600)
    assert not worker.work_once(now=clock.tick(delay - 1))
    assert worker.work_once(now=clock.tick(2))


def broken(error: BaseException, attempt: int) -> float:
    raise RuntimeError("a broken backoff")


@pytest.mark.parametrize(
    "backoff",
    [broken, *(lambda error, attempt, value=value: value for value in (float("nan"), -1, None, "soon", float("inf")))],
    ids=["raises", "nan", "negative", "none", "text", "infinity"],
)
def test_a_backoff_that_is_no_use_falls_back_to_the_setting(
    driver: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register, heard: Any, backoff: Any
) -> None:
    """F50"""

    @register(max_attempts=2, backoff=backoff)
    def boom() -> None:
        raise ValueError

    boom.dispatch()
    make_worker(fallback_backoff=17).work_once(now=clock.now)
    assert heard.one("job_failed")["delay"] == 17


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ([10], [10, 10, 10, 10]),
        ((10, 60, 300), [10, 60, 300, 300]),
        (0, [0, 0, 0, 0]),
        (0.5, [0.5] * 4),
        (timedelta(minutes=1), [60] * 4),
        ([], [7] * 4),
    ],
)
def test_a_job_comes_back_after_the_backoff_of_its_attempt(
    driver: Driver,
    make_worker: Callable[..., Worker],
    clock: Clock,
    register: Register,
    heard: Any,
    backoff: Any,
    delays: list[float],
) -> None:
    """F52"""

    @register(max_attempts=5, backoff=backoff)
    def boom() -> None:
        raise ValueError

    worker = make_worker(backoff=7)
    boom.dispatch()
    for delay in delays:
        assert worker.work_once(now=clock.now)
        if delay:
            assert not worker.work_once(now=clock.after(delay - 0.1))
        clock.tick(delay)
    assert [sent["delay"] for sent in heard.all("job_failed")] == delays


def test_attempts_end_when_the_next_would_start_too_late(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(max_attempts=100, backoff=40, retry_until=160)
    def boom() -> None:
        raise ValueError

    job_id = boom.dispatch().id  # a minute before the clock
    while worker.work_once(now=clock.now):
        clock.tick(40)
    assert failed(job_id).attempts == 3


def test_the_first_attempt_is_never_too_late(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register(retry_until=1)
    def work() -> None:
        seen.append(1)

    work.dispatch()
    worker.work_once(now=clock.tick(3600))
    assert seen == [1]


def test_max_exceptions_counts_failures_and_not_releases(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    from django_jobqueue import current_job

    seen: list[int] = []

    @register(max_attempts=100, max_exceptions=2, backoff=0)
    def work() -> None:
        seen.append(1)
        if len(seen) in {1, 3}:
            current_job().release()  # type: ignore[union-attr]
        raise ValueError

    job_id = work.dispatch().id
    run_all(worker, clock)
    assert len(seen) == 4
    assert failed(job_id).attempts == 2


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"give_up_on": (ValueError,)}, "failed"),
        ({"give_up_on": (OSError,)}, "scheduled"),
        ({"retry_on": (OSError,)}, "failed"),
        ({"retry_on": (LookupError, ValueError)}, "scheduled"),
        ({"retry_on": (ValueError,), "give_up_on": (UnicodeError,)}, "failed"),
    ],
)
def test_the_class_of_an_error_decides_whether_it_is_worth_another_attempt(
    driver: Driver, worker: Worker, clock: Clock, register: Register, options: dict[str, Any], state: str
) -> None:
    @register(max_attempts=2, backoff=60, **options)
    def boom() -> None:
        raise UnicodeDecodeError("ascii", b"\xff", 0, 1, "no")

    job_id = boom.dispatch().id
    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert job.state == state


def test_a_job_dispatched_without_a_limit_follows_the_worker_that_runs_it(
    driver: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register
) -> None:
    @register()
    def boom() -> None:
        raise ValueError

    job_id = boom.dispatch().id
    make_worker(max_attempts=1).work_once(now=clock.now)
    assert failed(job_id).attempts == 1


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
