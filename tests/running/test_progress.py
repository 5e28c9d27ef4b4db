"""What a handler says of how far it is: soon to be read, never in its transaction, and never its fate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from django_jobqueue import InvalidOption, JobContext, current_job, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.operations.lookup import Progress
from django_jobqueue.running.progress import Board
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.caching import OWN, kept_in, patient
from tests.helpers.gates import Gate, Started
from tests.helpers.waiting import wait_until

__all__ = ["kept_in", "patient"]

pytestmark = pytest.mark.usefixtures("kept_in")

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]
Start = Callable[..., Started]


def progress(job_id: Any) -> Progress | None:
    job = get_job(job_id)
    assert job is not None
    return job.progress


def last(job_id: Any) -> tuple[int | None, str] | None:
    found = progress(job_id)
    return None if found is None else (found.percent, found.stage)


@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_report_is_read_while_the_handler_runs(
    database: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    register: Register,
    is_atomic: bool,
    kept_in: str,
) -> None:
    if is_atomic and connection.vendor == "sqlite" and kept_in == OWN:
        pytest.skip("an atomic job holds the only lock")

    @register(takes_context=True, atomic=is_atomic, keep_result=60)
    def work(context: JobContext) -> None:
        if is_atomic:
            Group.objects.create(name="effect")
        context.progress(40, "pushing 3/8")
        gate.pass_through()

    job_id = work.dispatch().id
    running = start(make_worker(stop_when_empty=True))
    gate.wait_until_entered()
    wait_until(lambda: last(job_id) == (40, "pushing 3/8"), "the keeper stores it")
    gate.open()
    running.end()
    assert last(job_id) == (100, "pushing 3/8")


def test_reports_that_follow_are_read_too(memory: Driver, make_worker: Make, start: Start, register: Register) -> None:
    seen: list[int] = []

    @register(takes_context=True, keep_result=60)
    def work(context: JobContext) -> None:
        for percent in (10, 20, 30):
            context.progress(percent)
            wait_until(lambda p=percent: last(job_id) == (p, ""), "the keeper stores it")
            seen.append(percent)

    job_id = work.dispatch().id
    start(make_worker(stop_when_empty=True)).end()
    assert seen == [10, 20, 30]


def test_a_thousand_reports_are_few_writes(
    memory: Driver, make_worker: Make, start: Start, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[Any] = []
    monkeypatch.setattr(memory.progress, "write", lambda reports, now=None: writes.append(reports))

    @register()
    def work() -> None:
        context = current_job()
        assert context is not None
        for number in range(1000):
            context.progress(number / 10)
        wait_until(lambda: writes, "the keeper stores one")

    work.dispatch()
    start(make_worker(stop_when_empty=True)).end()
    assert writes[-1][0].percent == 100
    assert len(writes) < 100


def test_success_is_a_hundred_percent_whatever_was_said_last(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(takes_context=True, keep_result=3600)
    def work(context: JobContext) -> None:
        context.progress(40, "nearly")

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    found = progress(job_id)
    assert found is not None
    assert (found.percent, found.stage, found.updated_at) == (100, "nearly", clock.now)


def test_the_final_failure_keeps_the_last_percent(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    @register(takes_context=True, max_attempts=2, backoff=0)
    def work(context: JobContext) -> None:
        context.progress(20 * context.attempt, "pushing")
        raise ValueError

    job_id = work.dispatch().id
    worker.work_once(now=clock.tick())
    assert last(job_id) == (20, "pushing")
    worker.work_once(now=clock.tick())
    job = get_job(job_id)
    assert job is not None
    assert (job.state, last(job_id)) == ("failed", (40, "pushing"))


def test_a_release_closes_nothing(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(70, "waiting for the bank")
        context.release(60)

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    assert last(job_id) == (70, "waiting for the bank")


def test_a_job_that_says_nothing_has_no_progress_and_costs_no_statement(
    database: Driver, worker: Worker, register: Register
) -> None:
    from django.test.utils import CaptureQueriesContext

    @register(keep_result=60)
    def work() -> None: ...

    job_id = work.dispatch().id
    with CaptureQueriesContext(connection) as captured:
        worker.work_once()
    assert not any("jobqueue_progress" in query["sql"] for query in captured.captured_queries)
    assert progress(job_id) is None


def test_a_store_that_cannot_keep_progress_changes_nothing_else(
    driver: Driver,
    worker: Worker,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(driver.progress, "write", away)

    @register(takes_context=True, keep_result=60)
    def work(context: JobContext) -> int:
        context.progress(40)
        return 7

    job_id = work.dispatch().id
    worker.work_once()
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.result) == ("processed", 7)
    assert "could not be stored" in caplog.text


def test_a_worker_that_lost_the_job_says_nothing_of_it(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F04"""

    @register(takes_context=True)
    def slow(context: JobContext) -> None:
        driver.rescue(max_attempts=3, now=clock.after(1000))
        context.progress(90)

    job_id = slow.dispatch().id
    worker.work_once(now=clock.now)
    assert worker.stats.lost == 1
    assert progress(job_id) is None


@pytest.mark.parametrize("wrong", [-1, 100.5, "40", True, float("nan"), float("inf")])
def test_what_is_no_percentage_is_refused(memory: Driver, worker: Worker, register: Register, wrong: Any) -> None:
    @register(takes_context=True, max_attempts=1)
    def work(context: JobContext) -> None:
        with pytest.raises(InvalidOption, match="from 0 to 100"):
            context.progress(wrong)
        with pytest.raises(InvalidOption, match="as a string"):
            context.progress(1, 7)  # type: ignore[arg-type]

    work.dispatch()
    worker.work_once()
    assert worker.stats.processed == 1


def test_a_stage_is_cut_and_made_storable(driver: Driver, worker: Worker, clock: Clock, register: Register) -> None:
    @register(takes_context=True, keep_result=3600)
    def work(context: JobContext) -> None:
        context.progress(stage="\x00" + "ü" * 300)

    job_id = work.dispatch().id
    worker.work_once(now=clock.now)
    found = last(job_id)
    assert found is not None
    assert found[1] == "\\x00" + "ü" * 196


def test_a_board_without_reports_is_false() -> None:
    assert not Board()


@pytest.mark.parametrize("kept_in", [OWN], indirect=True)
def test_a_worker_deletes_reports_that_are_a_day_old(
    database: Driver, make_worker: Make, clock: Clock, register: Register
) -> None:
    from datetime import timedelta

    from django_jobqueue.models import Progress

    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(1)

    work.dispatch()
    work.dispatch()
    make_worker().work_once(now=clock.now - timedelta(days=2))
    make_worker(stop_when_empty=True).run()
    assert Progress.objects.count() == 1
