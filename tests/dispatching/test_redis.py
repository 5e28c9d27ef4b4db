"""Dispatching to Redis, which no transaction of a database includes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.exceptions import ConnectionError

from django_jobqueue import batch, chain, dispatch_many
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.exceptions import InvalidOption, InvalidPayload
from tests.drivers.contract import Clock
from tests.helpers.redis import entry, wipe

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def redis(settings: Any) -> Iterator[Driver]:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": entry(), "rows": {"DRIVER": "database"}}}
    yield connections["default"]
    wipe(connections["default"])


@pytest.fixture
def echo(register: Register) -> Any:
    @register()
    def echo(*args: Any, **kwargs: Any) -> None: ...

    return echo


def count(driver: Driver) -> int:
    return sum(size.ready + size.scheduled for size in driver.sizes().values())


class Failure(Exception):
    """What makes a transaction roll back."""


def test_a_job_is_there_after_the_outermost_commit_and_not_before(redis: Driver, echo: Any) -> None:
    """F32"""
    with transaction.atomic():
        Group.objects.create(name="row")
        with transaction.atomic():
            echo.dispatch()
            dispatch_many([echo.s(1), echo.s(2)])
        assert count(redis) == 0
    assert count(redis) == 3


def test_a_job_of_a_transaction_or_a_savepoint_that_rolls_back_never_was(redis: Driver, echo: Any) -> None:
    """F32"""
    with suppress(Failure), transaction.atomic():
        echo.dispatch()
        raise Failure
    with transaction.atomic():
        kept = echo.dispatch("kept")
        with suppress(Failure), transaction.atomic():
            echo.dispatch("undone")
            dispatch_many([echo.s(1)])
            raise Failure
    assert [record.id for record in redis.peek("default", limit=9)] == [kept.id]


def test_a_dispatch_may_be_told_not_to_wait_for_the_commit(redis: Driver, echo: Any) -> None:
    at_once = echo.using(after_commit=False)
    with suppress(Failure), transaction.atomic():
        at_once.dispatch()
        dispatch_many([at_once.s(1), echo.s(2)])
        assert count(redis) == 2
        raise Failure
    assert count(redis) == 2


def test_a_database_that_joins_the_transaction_does_so_whatever_it_is_told(redis: Driver, echo: Any) -> None:
    with suppress(Failure), transaction.atomic():
        echo.using(connection="rows", after_commit=False).dispatch()
        raise Failure
    assert count(connections["rows"]) == 0


@pytest.mark.parametrize("value", [1, "no"])
def test_after_commit_is_true_or_false(redis: Driver, echo: Any, value: Any) -> None:
    with pytest.raises(InvalidOption, match="after_commit"):
        echo.using(after_commit=value)


def test_a_dispatch_that_fails_after_the_commit_is_raised_and_logged_with_all_others(
    redis: Driver, register: Register, echo: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F32: Django calls no other callback after one that raised, so that the first speaks for all."""

    @register(queue="mail", priority=5, sensitive=["password"])
    def invite(name: str, password: str) -> None: ...

    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr(redis, "push", gone)
    ids: list[Any] = []

    @transaction.atomic
    def work() -> None:
        ids.append(invite.using(metadata={"user": 7}).dispatch("ann", "hunter2").id)
        with suppress(Failure), transaction.atomic():
            echo.dispatch("undone")
            raise Failure
        ids.append(echo.dispatch(1).id)
        ids.extend(dispatch_many([echo.s(2), echo.s(3)]))

    with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(ConnectionError):
        work()
    lines = [record.getMessage() for record in caplog.records if record.name == "django_jobqueue"]
    for line, job_id in zip(lines, ids, strict=True):
        assert str(job_id) in line
    assert all(part in lines[0] for part in ("tests.invite", "'mail'", "priority 5", '{"user":7}', "ann", "gone"))
    assert "hunter2" not in lines[0]


def test_a_batch_and_a_chain_that_fail_after_the_commit_are_logged_whole(
    redis: Driver, echo: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr(redis, "push", gone)
    monkeypatch.setattr(redis, "create_batch", gone)

    @transaction.atomic
    def work() -> None:
        batch([echo.s("member")]).dispatch()
        chain(echo.s("first"), echo.s("second"), echo.s("third")).dispatch()
        echo.dispatch("after")

    with caplog.at_level(logging.ERROR, logger="django_jobqueue"), pytest.raises(ConnectionError):
        work()
    lines = [record.getMessage() for record in caplog.records if record.name == "django_jobqueue"]
    assert ["member" in lines[0], "first" in lines[1], "after" in lines[2]] == [True] * 3
    assert "second" in lines[1]
    assert "third" in lines[1]


def test_after_a_failure_the_next_transaction_is_as_any_other(
    redis: Driver, echo: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("gone")

    @transaction.atomic
    def work() -> None:
        echo.dispatch()
        echo.dispatch()

    with monkeypatch.context() as patched:
        patched.setattr(redis, "push", gone)
        with pytest.raises(ConnectionError):
            work()
    caplog.clear()
    with transaction.atomic():
        echo.dispatch()
    assert count(redis) == 1
    assert caplog.records == []


def test_an_atomic_job_is_refused_at_the_dispatch(redis: Driver, register: Register) -> None:
    @register(atomic=True)
    def pay() -> None: ...

    with pytest.raises(InvalidOption, match=r"atomic.*'default'"):
        pay.dispatch()
    assert pay.using(connection="rows").dispatch().stored
    assert count(redis) == 0


@pytest.mark.parametrize("text", ["\ud800", b"\xff.txt".decode(errors="surrogateescape"), "a\x00b"])
def test_text_that_a_database_could_not_carry_is_refused_here_too(redis: Driver, echo: Any, text: str) -> None:
    """F36"""
    with pytest.raises(InvalidPayload):
        echo.dispatch(text)
    with pytest.raises(InvalidPayload):
        echo.dispatch({text: 1})
    assert count(redis) == 0


def test_a_job_runs_with_the_arguments_that_it_was_given(
    redis: Driver, register: Register, worker: Any, clock: Clock
) -> None:
    seen: list[Any] = []

    @register(name="tests.see")
    def see(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    see.dispatch("☃ \n\\", {"a": [1, None]}, key="ü")
    assert worker.work_once(now=clock.now)
    assert seen == [(("☃ \n\\", {"a": [1, None]}), {"key": "ü"})]
    assert count(redis) == 0
