"""The backends for tests take and refuse what the real one does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.contrib.names import CARRIES_OPTIONS, DoesNotExist, InvalidTask, Status, task, tasks

DOUBLES = [f"django_jobqueue.contrib.tasks.{name}" for name in ("ImmediateBackend", "DummyBackend")]
IMMEDIATE, DUMMY = DOUBLES
OPTIONS = {"MAX_ATTEMPTS": 2, "BACKOFF": 1, "TIMEOUT": 9, "KEEP_RESULTS": 60, "CONNECTION": "default"}


@pytest.mark.parametrize("backend", DOUBLES)
def test_a_double_takes_what_the_real_one_takes(use: Any, backend: str) -> None:
    board = use(backend, **OPTIONS)
    assert list(tasks.default_task_backend.check()) == []
    later = timezone.now() + timedelta(hours=1)
    result = board.echo.using(run_after=later, priority=5, queue_name="low").enqueue((1,), key=2)
    assert (result.args, result.kwargs) == ([[1]], {"key": 2})
    board.add.using(run_after=timedelta(hours=1)).enqueue(1)
    board.add_later.enqueue(1, 2)
    board.look.enqueue()
    if CARRIES_OPTIONS:
        assert task(max_attempts=2, backoff=[1], timeout=3)(board.both).max_attempts == 2


@pytest.mark.parametrize("backend", DOUBLES)
def test_a_double_refuses_what_the_real_one_refuses(use: Any, backend: str) -> None:
    board = use(backend)
    for value in (float("nan"), b"x", {1: 2}, timezone.now()):
        with pytest.raises(TypeError):
            board.echo.enqueue(value)
    with pytest.raises(TypeError):
        board.add.enqueue()
    with pytest.raises(InvalidTask):
        board.add.using(queue_name="other")
    assert board.seen == []


def test_immediate_runs_at_once(use: Any) -> None:
    board = use(IMMEDIATE)
    result = board.add.enqueue(1, 2)
    assert (result.status, result.return_value) == (Status.SUCCESSFUL, 3)
    assert board.fail.enqueue().status == Status.FAILED
    result.refresh()
    assert board.add.get_result(result.id).return_value == 3
    with pytest.raises(DoesNotExist):
        board.add.get_result("unknown")


def test_dummy_keeps_what_was_enqueued(use: Any) -> None:
    board = use(DUMMY)
    result = board.send.enqueue("x")
    [kept] = tasks.default_task_backend.results
    assert (kept.id, kept.task.queue_name, kept.args) == (result.id, "mail", ["x"])
    assert board.seen == []
    tasks.default_task_backend.clear()
    assert tasks.default_task_backend.results == []
