"""Progress in a cache: whatever the cache does, jobs, their ends and their reservations are as without it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from django.core.cache import caches
from django.core.management import call_command
from django.db import connection

from django_jobqueue import JobContext, get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import Report
from django_jobqueue.running import progress
from django_jobqueue.running.progress import Aside
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.caching import ALIAS, SERVER, TroubledCache, kept_in, patient, troubled
from tests.helpers.gates import Gate, Started
from tests.helpers.slow import reserved_until
from tests.helpers.waiting import wait_until

__all__ = ["kept_in", "patient", "troubled"]

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
Make = Callable[..., Worker]
Start = Callable[..., Started]
Troubled = type[TroubledCache]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "progress" in record.getMessage()]


def refuse() -> None:
    raise ConnectionError("the cache is away")


def test_a_loop_that_settles_calls_no_cache(
    troubled: Troubled, memory: Driver, make_worker: Make, start: Start, register: Register
) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40)

    for _ in range(20):
        work.dispatch()
    start(make_worker(stop_when_empty=True)).end()
    assert {call.thread for call in troubled.calls} == {"jobqueue-progress"}
    assert sum(call.percents.count(100) for call in troubled.calls) == 20


def test_reports_and_ends_are_few_writes(
    troubled: Troubled, memory: Driver, make_worker: Make, start: Start, register: Register
) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40)

    for _ in range(500):
        work.dispatch()
    start(make_worker(stop_when_empty=True)).end()
    assert len(troubled.calls) < 50


def test_a_cache_that_hangs_holds_up_neither_a_job_nor_its_reservation(
    troubled: Troubled,
    memory: Driver,
    make_worker: Make,
    start: Start,
    gate: Gate,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = Event()
    troubled.before_write = goes_on.wait
    monkeypatch.setattr(progress, "END_SECONDS", 0.01)

    @register(takes_context=True, keep_result=60)
    def work(context: JobContext) -> int:
        context.progress(40)
        gate.pass_through()
        return 7

    job_id = work.dispatch().id
    running = start(make_worker(stop_when_empty=True, retry_after=1))
    gate.wait_until_entered()
    try:
        wait_until(lambda: troubled.calls, "the cache is called")
        for _ in range(2):
            before = reserved_until(memory, job_id)
            wait_until(lambda b=before: reserved_until(memory, job_id) > b, "the keeper renews")
        gate.open()
        running.end()
        job = get_job(job_id)
        assert job is not None
        assert (job.state, job.result) == ("processed", 7)
    finally:
        goes_on.set()


def test_a_cache_that_raises_is_complained_of_once_and_said_to_be_back(
    troubled: Troubled,
    memory: Driver,
    make_worker: Make,
    start: Start,
    register: Register,
    caplog: pytest.LogCaptureFixture,
) -> None:
    troubled.before_write = refuse

    @register(takes_context=True, keep_result=60)
    def work(context: JobContext) -> None:
        for count in (1, 2, 3):
            context.progress(count)
            wait_until(lambda c=count: len(troubled.calls) >= c, "the next write fails")
        troubled.before_write = lambda: None

    job_id = work.dispatch().id
    start(make_worker(stop_when_empty=True)).end()
    assert complaints(caplog) == [
        "The progress of jobs on 'default' could not be stored.",
        "The progress of jobs on 'default' can be stored again.",
    ]
    job = get_job(job_id)
    assert job is not None
    assert job.progress is not None
    assert (job.state, job.progress.percent) == ("processed", 100)


def test_a_cache_that_does_not_answer_is_complained_of_once(
    troubled: Troubled, memory: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = Event()
    troubled.before_write = goes_on.wait
    monkeypatch.setattr(progress, "HANGS_SECONDS", 0)
    monkeypatch.setattr(progress, "MOST_WAITING", 3)
    aside = Aside()
    reports = [Report(new_job_id(), None, percent, "") for percent in range(10)]
    try:
        for report in reports:
            aside.put("default", [report])
            wait_until(lambda: troubled.calls, "the cache is called")
        assert complaints(caplog) == ["The cache for the progress of jobs has not answered for 0 s; give it a timeout."]
    finally:
        goes_on.set()
        aside.end()
    assert [call.percents for call in troubled.calls] == [[0], [7, 8, 9]], "the last ones"


def test_a_worker_starts_and_ends_without_the_cache(
    settings: Any, memory: Driver, make_worker: Make, start: Start, register: Register
) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PROGRESS_CACHE": "absent"}

    @register(takes_context=True, keep_result=60)
    def work(context: JobContext) -> None:
        context.progress(40)

    job_id = work.dispatch().id
    start(make_worker(stop_when_empty=True)).end()
    job = get_job(job_id)
    assert job is not None
    assert (job.state, job.progress) == ("processed", None)


@pytest.mark.parametrize(("age", "timeout"), [(3600.0, 3600), (0.5, 1), (None, None)])
def test_a_report_is_kept_for_as_long_as_the_settings_say(
    settings: Any, troubled: Troubled, memory: Driver, register: Register, age: float | None, timeout: int | None
) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PRUNE": {"PROGRESS": age}}

    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40)

    work.dispatch()
    Worker().work_once()
    assert [call.timeout for call in troubled.calls] == [timeout]


@pytest.mark.parametrize("kept_in", [SERVER], indirect=True)
def test_a_report_has_a_time_to_live_on_the_server(kept_in: str, memory: Driver, register: Register) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40)

    work.dispatch()
    Worker().work_once()
    (key,) = caches[ALIAS].keys("*")
    assert 86_000 < caches[ALIAS].ttl(key) <= 86_400


def test_keys_are_such_as_every_cache_takes(troubled: Troubled, memory: Driver, register: Register) -> None:
    from django.core.cache.backends.base import memcache_key_warnings

    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40, "☃ " * 100)

    work.dispatch()
    Worker().work_once()
    (key,) = troubled.calls[0].values
    assert list(memcache_key_warnings(key)) == []
    assert len(key) < 100


@pytest.mark.parametrize("junk", [7, "text", None, [1], ["x", "", 0, ""], [1, "", "x", ""], b"\x00"])
def test_what_is_no_report_reads_as_none(troubled: Troubled, memory: Driver, register: Register, junk: Any) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40)
        context.release(60)

    job_id = work.dispatch().id
    Worker().work_once()
    (key,) = troubled.calls[0].values
    caches[ALIAS].set(key, junk)
    job = get_job(job_id)
    assert job is not None
    assert job.progress is None


def test_a_report_that_comes_after_the_reservation_was_lost_is_left_out(
    troubled: Troubled, memory: Driver, clock: Clock, register: Register
) -> None:
    """F04"""
    seen: list[int] = []

    @register(takes_context=True, max_attempts=5)
    def slow(context: JobContext) -> None:
        if seen:
            context.progress(20)
            context.release(3600)
        seen.append(context.attempt)
        memory.rescue(max_attempts=5, now=clock.after(1000))
        clock.tick(1000)
        assert Worker().work_once(now=clock.now)
        context.progress(90)

    job_id = slow.dispatch().id
    worker = Worker()
    worker.work_once(now=clock.now)
    assert worker.stats.lost == 1
    assert connections["default"].progress.get(job_id).percent == 20  # type: ignore[union-attr]


def test_the_cache_may_be_a_table_of_the_same_database(
    patient: None,
    settings: Any,
    transactional_db: None,
    make_worker: Make,
    start: Start,
    gate: Gate,
    register: Register,
) -> None:
    backend = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "progress_cache"}
    settings.CACHES = {**settings.CACHES, ALIAS: backend}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}}, "PROGRESS_CACHE": ALIAS}

    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(40, "half")
        gate.pass_through()

    call_command("createcachetable", verbosity=0)
    try:
        job = get_job(work.dispatch().id)
        assert job is not None
        running = start(make_worker(stop_when_empty=True))
        gate.wait_until_entered()
        wait_until(lambda: job.progress is not None, "the report is in the table")
        gate.open()
        running.end()
        assert job.progress is not None
        assert (job.progress.percent, job.progress.stage) == (100, "half")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE progress_cache")
