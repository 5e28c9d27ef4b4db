"""A job dispatched inside a transaction exists exactly when that commits; what cannot join it, waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.db import connections as databases

from django_jobqueue import batch, dispatch_many, get_batch
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs import chunks
from django_jobqueue.running.worker import Worker
from tests.helpers.listening import Heard
from tests.helpers.threads import in_threads

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def echo(register: Register) -> Any:
    @register()
    def echo(*args: Any) -> None: ...

    return echo


def count(driver: Driver) -> int:
    return sum(size.ready + size.scheduled for size in driver.sizes().values())


class Failure(Exception):
    """What makes a transaction roll back."""


@contextmanager
def rolled_back(using: str | None = None) -> Iterator[None]:
    """A transaction, or inside of one a savepoint, that ends with an error."""
    with suppress(Failure), transaction.atomic(using=using):
        yield
        raise Failure


# In the transaction of its own database


def test_a_job_of_a_transaction_that_commits_exists(database: Driver, echo: Any) -> None:
    """F32"""
    with transaction.atomic():
        job_id = echo.dispatch().id
        assert database.get(job_id) is not None
    assert database.get(job_id) is not None


def test_a_job_of_a_transaction_that_rolls_back_never_was(database: Driver, echo: Any) -> None:
    """F32"""
    with rolled_back():
        echo.dispatch()
        dispatch_many([echo.s(1), echo.s(2)])
    assert count(database) == 0


def test_a_job_of_a_savepoint_that_rolls_back_never_was(database: Driver, echo: Any) -> None:
    """F32"""
    with transaction.atomic():
        kept = echo.dispatch("kept")
        with rolled_back():
            echo.dispatch("undone")
            dispatch_many([echo.s(1), echo.s(2)])
        also = echo.dispatch("kept too")
    assert [record.id for record in database.peek("default", limit=9)] == [kept.id, also.id]


def test_a_rolled_back_job_never_runs(database: Driver, worker: Worker, register: Register) -> None:
    ran: list[str] = []

    @register()
    def run(name: str) -> None:
        ran.append(name)

    with transaction.atomic():
        run.dispatch("kept")
        with rolled_back():
            run.dispatch("undone")
    while worker.work_once():
        pass
    assert ran == ["kept"]


def test_nobody_sees_a_job_before_the_outermost_commit(database: Driver, echo: Any) -> None:
    """F32"""
    if connection.vendor == "sqlite":
        pytest.skip("readers of a SQLite test database may wait for its writer")
    with transaction.atomic():
        with transaction.atomic():
            echo.dispatch()
        assert in_threads(1, lambda _: count(database)) == [0]
    assert in_threads(1, lambda _: count(database)) == [1]


def test_a_dispatch_leaves_the_callers_connection_and_transaction_alone(database: Driver, echo: Any) -> None:
    """F29"""
    with transaction.atomic():
        Group.objects.create(name="before")
        raw = connection.connection
        echo.dispatch()
        dispatch_many([echo.s(1), echo.s(2)])
        assert connection.connection is raw
        assert connection.in_atomic_block
        assert not connection.needs_rollback
        assert Group.objects.count() == 1
    assert connection.connection is raw


def test_a_dispatch_outside_of_a_transaction_is_immediate(database: Driver, echo: Any) -> None:
    job_id = echo.dispatch().id
    assert not connection.in_atomic_block
    assert in_threads(1, lambda _: database.get(job_id) is not None) == [True]


# In a store that cannot join it


@pytest.fixture
def memory_beside_database(transactional_db: None, settings: Any) -> Driver:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    return connections["default"]


def test_a_store_without_transactions_waits_for_the_commit(
    memory_beside_database: Driver, echo: Any, heard: Heard
) -> None:
    """F32"""
    with transaction.atomic():
        with transaction.atomic():
            done = echo.dispatch()
            ids = dispatch_many([echo.s(1), echo.s(2)])
        assert done.stored is True
        assert count(memory_beside_database) == 0
        assert heard.sent == []
    assert count(memory_beside_database) == 3
    assert [sent["id"] for sent in heard.all("job_dispatched")] == [done.id, *ids]


def test_a_store_without_transactions_gets_nothing_of_one_that_rolls_back(
    memory_beside_database: Driver, echo: Any, heard: Heard
) -> None:
    with rolled_back():
        echo.dispatch()
        dispatch_many([echo.s(1), echo.s(2)])
    with transaction.atomic(), rolled_back():
        echo.dispatch()
    assert count(memory_beside_database) == 0
    assert heard.sent == []


def test_arguments_are_those_of_the_dispatch_and_not_of_the_commit(memory_beside_database: Driver, echo: Any) -> None:
    """F41"""
    items = [1]
    with transaction.atomic():
        job_id = echo.dispatch(items).id
        items.append(2)
    record = memory_beside_database.get(job_id)
    assert record is not None
    assert record.payload == '{"args":[[1]],"kwargs":{}}'


def test_a_refusal_comes_at_the_dispatch_and_not_at_the_commit(memory_beside_database: Driver, echo: Any) -> None:
    with transaction.atomic(), pytest.raises(TypeError):
        echo.dispatch({1})
    assert count(memory_beside_database) == 0


def test_outside_of_a_transaction_nobody_waits(memory_beside_database: Driver, echo: Any) -> None:
    assert echo.dispatch().stored
    assert count(memory_beside_database) == 1


# In another database


@pytest.fixture
def queue_in_archive(archive: str, settings: Any) -> Driver:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": archive}}}
    return connections["default"]


def test_a_queue_in_another_database_waits_for_the_callers_commit(queue_in_archive: Driver, echo: Any) -> None:
    with transaction.atomic():
        Group.objects.create(name="before")
        echo.dispatch()
        dispatch_many([echo.s(1), echo.s(2)])
        assert count(queue_in_archive) == 0
    assert count(queue_in_archive) == 3


def test_a_queue_in_another_database_gets_nothing_of_a_transaction_that_rolls_back(
    queue_in_archive: Driver, echo: Any
) -> None:
    with rolled_back():
        echo.dispatch()
        dispatch_many([echo.s(1), echo.s(2)])
    assert count(queue_in_archive) == 0


def test_a_dispatch_joins_a_transaction_of_its_own_database(queue_in_archive: Driver, archive: str, echo: Any) -> None:
    with transaction.atomic(), rolled_back(archive):
        echo.dispatch()
        assert count(queue_in_archive) == 1
    assert count(queue_in_archive) == 0
    with transaction.atomic(using=archive):
        echo.dispatch()
        assert count(queue_in_archive) == 1
    assert count(queue_in_archive) == 1


def test_a_batch_that_another_database_refuses_after_the_commit_is_logged_with_all_its_jobs(
    queue_in_archive: Driver, echo: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch and its jobs are one transaction there: the second chunk takes the first one with it."""
    push, calls = queue_in_archive.push, iter([True])

    def once(*given: Any, **more: Any) -> Any:
        if next(calls, False):
            return push(*given, **more)
        raise OperationalError("gone")

    monkeypatch.setattr(chunks, "CHUNK_ROWS", 1)
    monkeypatch.setattr(queue_in_archive, "push", once)
    made: list[Any] = []
    with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(OperationalError):
        transaction.atomic(lambda: made.append(batch([echo.s(1), echo.s(2)], name="night").dispatch()))()
    told = [(record.id, "was not stored" in record.getMessage()) for record in caplog.records]
    assert told == [(str(job_id), True) for job_id in (made[0].id, *made[0].ids)]
    assert get_batch(made[0].id) is None
    assert count(queue_in_archive) == 0


def test_a_dispatch_into_another_database_leaves_both_connections_alone(
    queue_in_archive: Driver, archive: str, echo: Any
) -> None:
    """F29"""
    with transaction.atomic(), transaction.atomic(using=archive):
        raw = connection.connection, databases[archive].connection
        echo.dispatch()
        assert (connection.connection, databases[archive].connection) == raw
        assert connection.in_atomic_block
        assert databases[archive].in_atomic_block


def test_whose_commit_is_awaited_is_a_setting(archive: str, settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}, "AFTER_COMMIT": archive}
    memory = connections["default"]
    with transaction.atomic():
        echo.dispatch()
        assert count(memory) == 1
    with transaction.atomic(using=archive):
        echo.dispatch()
        assert count(memory) == 1
    assert count(memory) == 2
