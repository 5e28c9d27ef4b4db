"""A handler sees clean state, and what it leaves behind does not reach the next one."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction
from django.test import override_settings
from django.utils import timezone, translation

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.running import surroundings
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock
from tests.helpers.simulation import Simulation

Register = Callable[..., Callable[[Callable[..., Any]], Any]]

variable: ContextVar[str] = ContextVar("variable", default="nothing")


def run_all(worker: Worker, clock: Clock) -> None:
    while worker.work_once(now=clock.now):
        pass


@pytest.fixture
def next_job(worker: Worker, clock: Clock, register: Register) -> Callable[[], None]:
    """Run everything, and see that a normal job behind it writes to the database at its first attempt."""

    @register(name="tests.next", max_attempts=1, priority=-100)
    def write() -> None:
        assert connection.get_autocommit()
        assert not connection.in_atomic_block
        Group.objects.create(name="next")

    def run() -> None:
        write.dispatch()
        run_all(worker, clock)
        assert Group.objects.filter(name="next").count() == 1

    return run


# What lives in the thread's context


def test_language_time_zone_and_precision_do_not_reach_the_next_job(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F39"""
    seen = []

    @register()
    def change() -> None:
        translation.activate("fr")
        timezone.activate("Asia/Tokyo")
        decimal.getcontext().prec = 3
        variable.set("changed")

    @register()
    def look() -> None:
        zone = timezone.get_current_timezone_name()
        seen.append((translation.get_language(), zone, decimal.getcontext().prec, variable.get()))

    change.dispatch()
    look.dispatch()
    run_all(worker, clock)
    assert seen == [(django_settings.LANGUAGE_CODE, django_settings.TIME_ZONE, 28, "nothing")]


def test_what_the_caller_of_a_worker_activated_does_not_reach_a_job(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register()
    def look() -> None:
        seen.append((translation.get_language(), timezone.get_current_timezone_name(), variable.get()))

    look.dispatch()
    token = variable.set("the caller's")
    try:
        with translation.override("fr"), timezone.override("Asia/Tokyo"):
            run_all(worker, clock)
            assert translation.get_language() == "fr"
    finally:
        variable.reset(token)
    assert seen == [(django_settings.LANGUAGE_CODE, django_settings.TIME_ZONE, "nothing")]


# Connections and transactions


def test_a_transaction_that_a_handler_leaves_open_is_rolled_back_and_logged(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """F34 b"""

    @register()
    def enter() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="lost")

    enter.dispatch()
    next_job()
    assert not Group.objects.filter(name="lost").exists()
    assert "left a transaction on 'default' open" in caplog.text
    assert (worker.stats.processed, worker.stats.lost) == (2, 0)


def test_autocommit_that_a_handler_switched_off_is_on_again(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """F34 a"""

    @register()
    def switch() -> None:
        connection.set_autocommit(False)
        Group.objects.create(name="lost")

    switch.dispatch()
    next_job()
    assert not Group.objects.filter(name="lost").exists()
    assert "left autocommit of 'default' switched" in caplog.text
    assert worker.stats.processed == 2


def test_a_swallowed_error_in_a_transaction_does_not_reach_the_next_job(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None]
) -> None:
    """F34 c"""

    @register(max_attempts=1)
    def swallow() -> None:
        Group.objects.create(name="double")
        with transaction.atomic(), suppress(DatabaseError):
            Group.objects.create(name="double")

    job_id = swallow.dispatch().id
    next_job()
    assert get_job(job_id) is None
    assert worker.stats.runs == 2


def test_a_database_error_in_autocommit_does_not_reach_the_next_job(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None]
) -> None:
    """F28"""

    @register(max_attempts=1)
    def err() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELEKT 1")

    job_id = err.dispatch().id
    next_job()
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"


def test_a_cursor_that_is_left_open_does_not_reach_the_next_job(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None]
) -> None:
    """F28"""
    kept = []

    @register(max_attempts=1)
    def read() -> None:
        cursor = connection.cursor()
        cursor.execute("SELECT 1 UNION ALL SELECT 2")
        kept.append(cursor)
        raise ValueError

    job_id = read.dispatch().id
    next_job()
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"
    kept[0].close()


def test_a_session_that_the_server_ended_does_not_reach_the_next_job(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None]
) -> None:
    """F28"""
    kill = {"postgresql": "SELECT pg_terminate_backend(pg_backend_pid())", "mysql": "KILL CONNECTION_ID()"}
    if connection.vendor not in kill:
        pytest.skip("has no sessions that could be ended")

    @register(max_attempts=1)
    def end() -> None:
        with connection.cursor() as cursor:
            cursor.execute(kill[connection.vendor])
            cursor.execute("SELECT 1")

    job_id = end.dispatch().id
    next_job()
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"


def test_a_connection_that_a_handler_closed_is_opened_again(
    database: Driver, worker: Worker, register: Register, next_job: Callable[[], None]
) -> None:
    @register()
    def close() -> None:
        connection.close()

    close.dispatch()
    next_job()
    assert worker.stats.processed == 2


def test_a_handler_keeps_its_connection_from_job_to_job(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    seen = []

    @register()
    def look() -> None:
        connection.ensure_connection()
        seen.append(connection.connection)

    for _ in range(3):
        look.dispatch()
    run_all(worker, clock)
    assert len({id(raw) for raw in seen}) == 1


def test_an_async_handler_uses_the_connection_of_the_workers_thread(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    from asgiref.sync import sync_to_async

    seen = []

    @register(max_attempts=1)
    async def look() -> None:
        seen.append(await sync_to_async(lambda: id(connection.connection))())
        await Group.objects.acreate(name="written")

    connection.ensure_connection()
    look.dispatch()
    run_all(worker, clock)
    assert seen == [id(connection.connection)]
    assert Group.objects.filter(name="written").exists()


# Memory


def test_the_query_log_does_not_grow_with_the_jobs(
    database: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F57"""
    lengths = []

    @register()
    def query() -> None:
        lengths.append(len(connection.queries_log))
        for _ in range(5):
            Group.objects.count()

    with override_settings(DEBUG=True):
        for _ in range(6):
            query.dispatch()
        run_all(worker, clock)
    assert len(lengths) == 6
    assert max(lengths[1:]) < 25  # one reserve and one settle, and nothing of the jobs before


def test_the_query_log_does_not_grow_with_the_looks_of_an_idle_worker(
    database: Driver, make_worker: Callable[..., Worker], simulation: Simulation
) -> None:
    """F57"""
    lengths: list[int] = []
    with override_settings(DEBUG=True):
        simulation.run(make_worker(), waits=30, on_wait=lambda number: lengths.append(len(connection.queries_log)))
    assert len(lengths) == 30
    assert max(lengths) < 15


# CONN_MAX_AGE


@pytest.fixture
def opened_at(database: Driver, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Open the connection anew with a CONN_MAX_AGE."""
    before = connection.settings_dict["CONN_MAX_AGE"]
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", before)

    def open_with(age: Any) -> None:
        connection.settings_dict["CONN_MAX_AGE"] = age
        connection.close()
        connection.ensure_connection()

    return open_with


def test_a_connection_that_is_too_old_is_closed_between_jobs(
    opened_at: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_at(60)
    surroundings.refresh_connections()
    assert connection.connection is not None
    monkeypatch.setattr(connection, "close_at", 0.0)
    surroundings.refresh_connections()
    assert connection.connection is None


@pytest.mark.parametrize("age", [0, None])
def test_a_connection_without_an_age_is_kept(opened_at: Callable[[Any], None], age: int | None) -> None:
    """An age of 0 means one request in Django, and would mean one poll here."""
    opened_at(age)
    surroundings.refresh_connections()
    assert connection.connection is not None


def test_a_connection_in_a_transaction_is_never_closed(
    opened_at: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_at(60)
    monkeypatch.setattr(connection, "close_at", 0.0)
    with transaction.atomic():
        surroundings.refresh_connections()
        surroundings.close_connections()
        assert connection.connection is not None
        assert Group.objects.count() == 0
