"""What a handler returns: kept where it is asked for, and never the reason for a job to fail."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test.utils import CaptureQueriesContext

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.operations.lookup import FoundJob
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def found(job_id: Any) -> FoundJob:
    job = get_job(job_id)
    assert job is not None
    return job


VALUES = [None, 7, "ü", [1, (2, 3)], {"$type": "x"}, date(2030, 1, 2), timedelta(seconds=1), Decimal("1.10")]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_result_comes_back_as_it_was_returned(driver: Driver, worker: Worker, register: Register, value: Any) -> None:
    @register(keep_result=3600)
    def work() -> Any:
        return value

    job_id = work.dispatch().id
    worker.work_once()
    job = found(job_id)
    assert (job.state, job.result, job.result_error) == ("processed", value, "")
    assert type(job.result) is type(value)


@pytest.mark.parametrize("kind", ["async", "atomic"])
def test_every_kind_of_handler_keeps_its_result(
    database: Driver, worker: Worker, register: Register, kind: str
) -> None:
    if kind == "async":

        @register(keep_result=3600)
        async def work() -> int:
            return 7

    else:

        @register(keep_result=3600, atomic=True)
        def work() -> int:
            Group.objects.create(name="effect")
            return 7

    job_id = work.dispatch().id
    worker.work_once()
    assert found(job_id).result == 7
    assert worker.stats.processed == 1


def test_a_result_tells_of_its_job_and_of_the_attempts_before(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    outcomes: list[Any] = [ValueError("no stock"), "done"]

    @register(keep_result=timedelta(days=1), max_attempts=4, backoff=0)
    def work() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    job_id = work.using(queue="mail", metadata={"user": 7}).dispatch().id
    worker.work_once(now=clock.now)
    worker.work_once(now=clock.tick())
    job = found(job_id)
    assert (job.name, job.queue, job.connection, job.metadata) == ("tests.work", "mail", "default", {"user": 7})
    assert (job.attempts, job.max_attempts) == (2, 4)
    assert [error.message for error in job.errors] == ["no stock"]
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at < job.started_at <= job.finished_at < job.started_at + timedelta(seconds=30)
    assert clock.now <= job.started_at


@pytest.mark.parametrize(("setting", "option", "is_kept"), [(60, None, True), (60, 0, False), (0, 60, True)])
def test_the_option_wins_over_the_setting(
    driver: Driver,
    make_worker: Callable[..., Worker],
    register: Register,
    setting: float,
    option: float | None,
    is_kept: bool,
) -> None:
    @register(keep_result=option)
    def work() -> int:
        return 7

    job_id = work.dispatch().id
    make_worker(keep_results=setting).work_once()
    assert (get_job(job_id) is not None) is is_kept


class Strange:
    """A value that raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(3)

    def __repr__(self) -> str:
        raise KeyboardInterrupt

    def __hash__(self) -> int:
        return 1


UNKEPT: list[tuple[Callable[[], Any], str]] = [
    (lambda: {1, 2}, "result: a set is not JSON; pass a sorted list."),
    (lambda: {"a": [float("nan")]}, "result['a'][0]: nan is not JSON"),
    (lambda: (number for number in ()), "result: builtins.generator is not carried"),
    (lambda: socket.socket, "result: builtins.type is not carried"),
    (lambda: {Strange(): 1}, "str()"),
    (Strange, "3"),
    (lambda: "x" * 2_000_000, "The result takes 2000002 bytes; PAYLOAD_LIMIT is 1048576."),
    (lambda: b"x", "result: bytes are not JSON"),
]


@pytest.mark.parametrize(("make", "why"), UNKEPT, ids=[str(index) for index in range(len(UNKEPT))])
@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_value_that_cannot_be_kept_costs_the_job_only_its_result(
    database: Driver,
    worker: Worker,
    register: Register,
    heard: Heard,
    make: Callable[[], Any],
    why: str,
    is_atomic: bool,
) -> None:
    """F43"""
    runs = []

    @register(keep_result=3600, atomic=is_atomic)
    def work() -> Any:
        runs.append(1)
        return make()

    job_id = work.dispatch().id
    while worker.work_once():
        pass
    assert runs == [1]
    assert worker.stats.processed == 1
    assert len(heard.all("job_processed")) == 1
    job = found(job_id)
    assert (job.state, job.result) == ("processed", None)
    assert job.result_error.startswith(why) or why == "str()"
    assert job.result_error


def test_an_error_text_of_a_result_hides_secrets(memory: Driver, worker: Worker, register: Register) -> None:
    @register(keep_result=3600, sensitive=("pin",))
    def work(pin: str) -> Any:
        return {(pin,): 1}

    job_id = work.dispatch("5512-9981").id
    worker.work_once()
    assert "5512-9981" not in found(job_id).result_error
    assert "is no string" in found(job_id).result_error


def test_a_job_that_fails_for_good_has_no_result(driver: Driver, worker: Worker, register: Register) -> None:
    @register(keep_result=3600, max_attempts=1)
    def work() -> None:
        raise ValueError("no stock")

    job_id = work.dispatch().id
    worker.work_once()
    job = found(job_id)
    assert (job.state, job.result, job.result_error) == ("failed", None, "")
    assert job.finished_at is not None
    assert driver.get_result(job_id) is None


def test_an_atomic_job_that_is_rolled_back_leaves_no_result(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(keep_result=3600, atomic=True)
    def work() -> int:
        database.rescue(max_attempts=3, now=clock.after(1000))
        from django.db import connection

        connection.set_rollback(True)
        return 7

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert database.get_result(job_id) is None


def test_a_job_that_keeps_nothing_costs_no_statement_more(database: Driver, worker: Worker, register: Register) -> None:
    from django.db import connection, reset_queries

    @register()
    def plain() -> int:
        return 7

    @register(keep_result=60)
    def keeping() -> int:
        return 7

    def statements(work: Any) -> list[str]:
        work.dispatch()
        reset_queries()  # as a worker does before each job
        with CaptureQueriesContext(connection) as captured:
            worker.work_once()
        return [query["sql"] for query in captured.captured_queries]

    assert [sql for sql in statements(plain) if "jobqueue_result" in sql] == []
    assert len([sql for sql in statements(keeping) if "jobqueue_result" in sql]) == 1


@pytest.mark.parametrize("text", ["{", "", '{"$type":"gone","value":1}', '{"$type":"date","value":7}'])
def test_a_stored_result_that_cannot_be_read_is_an_error_text(
    database: Driver, worker: Worker, register: Register, text: str
) -> None:
    """F64"""
    from django_jobqueue.models import Result

    @register(keep_result=3600)
    def work() -> int:
        return 7

    job_id = work.dispatch().id
    worker.work_once()
    Result.objects.update(value=text)
    job = found(job_id)
    assert job.result is None
    assert job.result_error.startswith("The stored result cannot be read")


def test_a_worker_deletes_results_whose_time_is_over(
    database: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register
) -> None:
    from django_jobqueue.models import Result

    @register(keep_result=3600)
    def work() -> int:
        return 7

    for _ in range(2):
        work.dispatch()
    make_worker().work_once(now=clock.now - timedelta(hours=2))  # kept until an hour ago
    assert make_worker(stop_when_empty=True).run().processed == 1
    assert [result.expires_at > clock.now for result in Result.objects.all()] == [True]
