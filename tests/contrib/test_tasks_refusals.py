"""What is no task, or no value that a task could get, is refused before anything is stored."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.safestring import mark_safe

from django_jobqueue import InvalidOption, InvalidPayload, job
from django_jobqueue.drivers import Driver
from tests.contrib.names import CARRIES_OPTIONS, InvalidTask, task

cyclic: list[Any] = []
cyclic.append(cyclic)

REFUSED = [
    float("nan"),
    float("inf"),
    b"text",
    bytearray(b"text"),
    {1: "x"},
    {"a": {None: 1}},
    {1},
    datetime(2026, 1, 1, tzinfo=UTC),
    UUID(int=1),
    Decimal(1),
    object(),
    "a\x00b",
    "\ud800",
    cyclic,
    [{"a": [float("nan")]}],
]


def test_a_value_that_would_not_survive_is_refused_before_a_statement(database: Driver, use: Any) -> None:
    board = use()
    with CaptureQueriesContext(connection) as queries:
        for value in REFUSED:
            with pytest.raises(InvalidPayload):
                board.echo.enqueue(value)
            with pytest.raises(InvalidPayload):
                board.echo.enqueue(name=value)
    assert len(queries) == 0


def test_a_refusal_is_a_type_error_and_a_value_error(board: Any) -> None:
    with pytest.raises(TypeError):
        board.echo.enqueue(float("nan"))
    with pytest.raises(ValueError, match="bytes"):
        board.echo.enqueue(b"x")


def test_a_refusal_names_the_argument(board: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"^second\[0\]\['a'\]: nan"):
        board.add.enqueue(1, [{"a": float("nan")}])
    with pytest.raises(InvalidPayload, match=r"^argument 2: bytes"):
        board.echo.enqueue(1, b"x")
    with pytest.raises(InvalidPayload, match=r"^argument 1: Object of type datetime is not JSON serializable"):
        board.echo.enqueue(datetime(2026, 1, 1, tzinfo=UTC))


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


def test_subclasses_become_their_plain_type(board: Any) -> None:
    result = board.echo.enqueue(Colour.RED, Size.SMALL, mark_safe("<b>"), {Colour.RED: 1})
    assert result.args == ["red", 1, "<b>", {"red": 1}]
    assert [type(value) for value in result.args] == [str, int, str, dict]
    assert board.echo.get_result(result.id).args == result.args


def test_arguments_that_do_not_fit_are_refused(board: Any) -> None:
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        board.add.enqueue()
    with pytest.raises(TypeError):
        board.look.enqueue(1)
    with pytest.raises(TypeError):
        board.send.enqueue("x", colour="red")


def plain_function() -> None: ...


def generator() -> Any:
    yield 1


nameless = lambda: None  # noqa: E731 - what is tested


class Sender:
    @staticmethod
    def send() -> None: ...


@pytest.mark.parametrize("func", [nameless, Sender.send, generator], ids=["lambda", "method", "generator"])
def test_what_no_worker_could_run_is_no_task(board: Any, func: Any) -> None:
    with pytest.raises(InvalidTask, match="@task cannot take"):
        task(func)


def test_a_function_of_main_is_no_task(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_function, "__module__", "__main__")
    with pytest.raises(InvalidTask, match=r"tasks\.py"):
        task(plain_function)


def test_a_job_is_no_task_and_a_task_no_job(board: Any) -> None:
    with pytest.raises(InvalidTask, match=r"send_task = task\(send\)"):
        task(board.both_job)
    with pytest.raises(InvalidOption, match="decorate the plain function"):
        job(board.add)


@pytest.mark.parametrize("queue", ["", "a,b", " mail", "*"])
def test_a_queue_that_no_store_could_name_is_refused(board: Any, queue: str) -> None:
    with pytest.raises(InvalidTask):
        board.add.using(backend="mail", queue_name=queue)


def test_a_queue_that_is_not_in_queues_is_refused(board: Any) -> None:
    with pytest.raises(InvalidTask, match="not valid"):
        board.add.using(queue_name="other")


@pytest.mark.parametrize("change", [{"priority": 101}, {"priority": 1.5}, {"run_after": datetime(2026, 1, 1)}])  # noqa: DTZ001
def test_what_django_refuses_is_refused(board: Any, change: Any) -> None:
    with pytest.raises(InvalidTask):
        board.add.using(**change)


def test_a_time_from_now_that_never_comes_is_refused(board: Any) -> None:
    with pytest.raises(InvalidTask, match="run_after"):
        board.add.using(run_after=timedelta.max)


def test_a_task_that_a_worker_could_not_find_is_refused(board: Any) -> None:
    unnamed = task(plain_function)
    with pytest.raises(InvalidTask, match="could not find the task"):
        unnamed.enqueue()


@pytest.mark.skipif(not CARRIES_OPTIONS, reason="@task of Django 6.0 takes no further arguments")
@pytest.mark.parametrize("option", [{"max_attempts": 0}, {"backoff": -1}, {"timeout": 0}, {"timeout": "x"}])
def test_a_wrong_option_of_a_task_is_refused_at_import(board: Any, option: Any) -> None:
    with pytest.raises(InvalidTask, match=next(iter(option))):
        task(**option)(plain_function)
