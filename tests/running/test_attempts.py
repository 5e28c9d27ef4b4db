"""How often a job is started, and when again: attempts, backoff, and what ends them early."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from django_jobqueue import Exponential, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.notes import failed, run_all

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


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

    (_,) = driver.reserve("default", "killed", ReserveLimit(rows=1, max_attempts=3), retry_after=90, now=clock.now).jobs


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


def test_the_first_attempt_is_never_too_late(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
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
