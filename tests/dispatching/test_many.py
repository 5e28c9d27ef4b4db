"""dispatch_many: calls of any kind, all or none, a bounded chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobqueue import InvalidOption, InvalidPayload, dispatch_many, using
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.chunks import CHUNK_BYTES, CHUNK_ROWS
from django_jobqueue.running.worker import Worker
from tests.helpers.listening import Heard

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def echo(register: Register) -> Any:
    @register()
    def echo(*args: Any, **kwargs: Any) -> None: ...

    return echo


@pytest.fixture
def chunks(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were pushed at a time."""
    sizes: list[int] = []
    push = driver.push

    def record(jobs: Any, **given: Any) -> Any:
        sizes.append(len(jobs))
        return push(jobs, **given)

    monkeypatch.setattr(driver, "push", record)
    return sizes


def test_no_calls_are_no_jobs(driver: Driver) -> None:
    assert dispatch_many([]) == []
    assert driver.queues() == []


def test_the_ids_are_in_the_order_of_the_calls(driver: Driver, worker: Worker, register: Register) -> None:
    from django_jobqueue import current_job

    seen: list[Any] = []

    @register()
    def take(number: int) -> None:
        seen.append((number, current_job().id))  # type: ignore[union-attr]

    ids = dispatch_many(take.s(number) for number in range(20))
    while worker.work_once():
        pass
    assert seen == list(enumerate(ids))


def test_calls_may_be_mixed_and_keep_their_options(driver: Driver, register: Register, echo: Any) -> None:
    """F10"""

    @register(queue="own", priority=3, max_attempts=7)
    def other() -> None: ...

    ids = dispatch_many(
        [
            echo.s(1),
            echo.using(queue="mail", delay=60).s(2),
            other.s(),
            using("tests.other", priority=-9, metadata={"a": 1}).s(),
        ]
    )
    found = [driver.get(job_id) for job_id in ids]
    assert [(r.name, r.queue, r.state, r.priority, r.max_attempts, r.metadata) for r in found if r] == [
        ("tests.echo", "default", "ready", 0, None, ""),
        ("tests.echo", "mail", "scheduled", 0, None, ""),
        ("tests.other", "own", "ready", 3, 7, ""),
        ("tests.other", "own", "ready", -9, 7, '{"a":1}'),
    ]
    assert found[1] is not None
    assert found[1].available_at - found[1].created_at == timedelta(seconds=60)


def test_calls_go_to_the_connection_of_each(settings: Any, echo: Any) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}},
        "QUEUES": {"mail": {"CONNECTION": "fast"}},
    }
    ids = dispatch_many([echo.s(), echo.using(queue="mail").s(), echo.using(connection="fast").s()])
    assert [connections["default"].get(job_id) is not None for job_id in ids] == [True, False, False]
    assert [connections["fast"].get(job_id) is not None for job_id in ids] == [False, True, True]


def test_what_is_no_call_is_refused(memory: Driver, echo: Any) -> None:
    for wrong in (echo, "tests.echo", 7, (echo, 1)):
        with pytest.raises(InvalidOption, match=r"dispatch_many\(\) takes calls such as"):
            dispatch_many([echo.s(1), wrong])
    assert memory.queues() == []


def test_each_job_is_announced(driver: Driver, echo: Any, heard: Heard) -> None:
    ids = dispatch_many(echo.s(number) for number in range(3))
    assert [sent["id"] for sent in heard.all("job_dispatched")] == ids


# Chunks


def test_a_chunk_is_bounded_in_rows(driver: Driver, echo: Any, chunks: list[int]) -> None:
    ids = dispatch_many(echo.s(number) for number in range(2 * CHUNK_ROWS + 1))
    assert len(set(ids)) == 2 * CHUNK_ROWS + 1
    assert sum(chunks) == len(ids)
    assert max(chunks) <= CHUNK_ROWS
    assert driver.sizes()["default"].ready == len(ids)


def test_a_chunk_is_bounded_in_bytes(driver: Driver, echo: Any, chunks: list[int]) -> None:
    """F44: MySQL closes the connection of a statement that is too long."""
    size = 900_000
    dispatch_many(echo.s("x" * size) for _ in range(12))
    assert max(chunks) <= CHUNK_BYTES // size + 1
    assert sum(chunks) == 12


def test_metadata_counts_in_the_bytes_of_a_chunk(driver: Driver, echo: Any, chunks: list[int]) -> None:
    size = 900_000
    dispatch_many(echo.using(metadata={"a": "x" * size}).s() for _ in range(12))
    assert max(chunks) <= CHUNK_BYTES // size + 1


def test_calls_are_taken_from_the_generator_chunk_by_chunk(
    database: Driver, echo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a million calls need the memory of one chunk."""
    made = 0
    ahead: list[int] = []
    pushed = 0
    push = database.push

    def record(jobs: Any, **given: Any) -> Any:
        nonlocal pushed
        pushed += len(jobs)
        ahead.append(made - pushed)
        return push(jobs, **given)

    def calls() -> Iterator[Any]:
        nonlocal made
        for number in range(5 * CHUNK_ROWS):
            made += 1
            yield echo.s(number)

    monkeypatch.setattr(database, "push", record)
    dispatch_many(calls())
    assert pushed == 5 * CHUNK_ROWS
    assert max(ahead) <= 1


# All or none


@pytest.mark.parametrize("at", [0, 5, CHUNK_ROWS + 5])
def test_one_refused_call_stores_none(driver: Driver, echo: Any, at: int) -> None:
    def calls() -> Iterator[Any]:
        for number in range(CHUNK_ROWS + 10):
            yield echo.s({number} if number == at else number)

    with pytest.raises(InvalidPayload):
        dispatch_many(calls())
    assert driver.sizes() == {}


def test_an_error_of_the_generator_stores_none(driver: Driver, echo: Any) -> None:
    def calls() -> Iterator[Any]:
        for number in range(CHUNK_ROWS + 10):
            yield echo.s(number)
        raise LookupError("the source ended")

    with pytest.raises(LookupError):
        dispatch_many(calls())
    assert driver.sizes() == {}


def test_the_callers_transaction_goes_on_after_a_refusal(database: Driver, echo: Any) -> None:
    def calls() -> Iterator[Any]:
        for number in range(CHUNK_ROWS + 10):
            yield echo.s(number)
        yield echo.s({1})

    with transaction.atomic():
        kept = echo.dispatch("kept")
        with pytest.raises(InvalidPayload):
            dispatch_many(calls())
        also = echo.dispatch("kept too")
    assert [record.id for record in database.peek("default", limit=9)] == [kept.id, also.id]


@pytest.mark.parametrize("commits", [True, False])
def test_options_hold_in_a_transaction_that_commits_and_nothing_does_in_one_that_does_not(
    database: Driver, echo: Any, commits: bool
) -> None:
    """F10"""
    with transaction.atomic():
        ids = dispatch_many(echo.using(delay=60, queue="mail").s(number) for number in range(3))
        transaction.set_rollback(not commits)
    found = [database.get(job_id) for job_id in ids]
    if commits:
        assert {(record.queue, record.state) for record in found if record} == {("mail", "scheduled")}
        delays = [(record.available_at - record.created_at).total_seconds() for record in found if record]
        assert delays == [60] * 3
    else:
        assert found == [None] * 3


def test_dispatch_many_is_one_transaction_of_its_own(database: Driver, echo: Any) -> None:
    seen: list[bool] = []

    def calls() -> Iterator[Any]:
        for number in range(3):
            yield echo.s(number)
            seen.append(connection.in_atomic_block)

    dispatch_many(calls())
    assert seen == [True] * 3
    assert not connection.in_atomic_block


def test_a_chunk_fits_the_parameters_of_every_database() -> None:
    """SQLite took 999 in one statement once, and takes 32,766 now; PostgreSQL 65,535."""
    columns = 14
    assert CHUNK_ROWS * columns < 32_766
