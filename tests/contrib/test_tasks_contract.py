"""What Django's documentation of tasks shows and promises, where no other module of this folder has it."""

from __future__ import annotations

import asyncio
import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass
from functools import partial
from typing import Any
from uuid import UUID

import django
import pytest
from django.db import transaction

from django_jobqueue.contrib.tasks import JobQueueTask
from django_jobqueue.drivers import Driver
from django_jobqueue.running.worker import Worker
from tests.contrib.conftest import BACKEND
from tests.contrib.names import CARRIES_OPTIONS, InvalidTask, JobQueueBackend, Status, compat, task, tasks
from tests.drivers.contract import Clock


def plain_function(number: int = 0) -> int:
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class ColouredTask(JobQueueTask):
    colour: str = "none"


class ColouredBackend(JobQueueBackend):
    task_class = ColouredTask


# Backends


def test_the_tasks_are_those_of_the_django_that_runs_them() -> None:
    """Also where the backport is installed beside a Django that has its own."""
    package = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    assert compat.BaseTaskBackend is importlib.import_module(f"{package}.backends.base").BaseTaskBackend
    assert issubclass(JobQueueBackend, compat.BaseTaskBackend)
    assert issubclass(JobQueueTask, compat.Task)


def test_a_backend_is_found_by_its_alias_and_knows_it(board: Any) -> None:
    assert tasks.task_backends["mail"].alias == "mail"
    assert tasks.default_task_backend.alias == "default"
    assert {backend.alias for backend in tasks.task_backends.all()} == {"default", "mail"}


def test_a_backend_without_queues_takes_the_default_one_only(board: Any, settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    assert board.add.enqueue(1).task.queue_name == "default"
    with pytest.raises(InvalidTask, match="not valid"):
        board.add.using(queue_name="mail")


def test_a_backend_holds_nothing_that_changes(board: Any, worker: Worker) -> None:
    """Django makes one for each thread."""
    backend = tasks.task_backends["default"]
    before = dict(vars(backend))
    result = board.add.enqueue(1)
    worker.work_once()
    backend.get_result(result.id)
    assert vars(backend) == before


def test_a_result_is_found_from_another_thread(board: Any, worker: Worker) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(board.add.enqueue, 1).result()
        other = pool.submit(lambda: tasks.task_backends["default"]).result()
    worker.work_once()
    assert tasks.task_backends["default"] is not other
    assert board.add.get_result(result.id).return_value == 1


def test_the_checks_of_django_ask_the_backends(board: Any, use: Any) -> None:
    checks = importlib.import_module(f"{tasks.__name__}.checks")  # of the app django_tasks, on Django 5.2
    assert list(checks.check_tasks()) == []
    use(MAX_ATTEMPTS=0)
    assert [message.id for message in checks.check_tasks()] == ["django_jobqueue.E101"]
    assert len(list(tasks.default_task_backend.check(databases=["default"]))) == 1


@pytest.mark.skipif(not CARRIES_OPTIONS, reason="@task of Django 6.0 takes no further arguments")
def test_a_project_has_a_task_class_of_its_own(
    memory: Driver, settings: Any, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.ColouredBackend"}}
    coloured = task(colour="red", max_attempts=2)(plain_function)
    monkeypatch.setitem(globals(), "plain_function", coloured)
    assert (type(coloured), coloured.colour, coloured.using(priority=1).colour) == (ColouredTask, "red", "red")
    result = coloured.enqueue(7)
    worker.work_once()
    found = coloured.get_result(result.id)
    assert (found.return_value, found.task.colour, found.task.max_attempts) == (7, "red", 2)


# Tasks


def test_a_task_is_changed_in_a_copy_only(board: Any) -> None:
    assert board.add.using(priority=10).priority == 10
    assert board.add.priority == 0
    assert board.send.using(priority=None, queue_name=None) == board.send
    with pytest.raises(FrozenInstanceError):
        board.add.priority = 10
    with pytest.raises(TypeError):
        board.add.using(takes_context=True)


def test_a_task_is_called_without_the_queue(board: Any, memory: Driver) -> None:
    assert board.add.call(2, second=3) == 5
    assert board.add_later.call(2, 3) == 5
    assert asyncio.run(board.add.acall(2, 3)) == asyncio.run(board.add_later.acall(2, 3)) == 5
    assert memory.queues() == []


def test_a_task_tells_its_name_and_path(board: Any) -> None:
    assert (board.add.name, board.add.module_path) == ("add", "tests.contrib.board.add")


def test_a_function_inside_of_another_is_no_task(board: Any) -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidTask):
        task(inner)


def test_a_task_that_takes_a_context_has_it_first(board: Any) -> None:
    with pytest.raises(InvalidTask, match="context"):
        task(takes_context=True)(plain_function)


def test_a_task_is_validated_again_when_it_is_enqueued(board: Any, settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}
    with pytest.raises(InvalidTask, match="not valid"):
        board.send.enqueue("x")


# Enqueueing


def test_each_enqueue_returns_a_result_of_its_own(board: Any) -> None:
    first, second = board.add.enqueue(1), board.add.enqueue(1)
    assert first.id != second.id
    assert [type(result) for result in (first, second)] == [compat.TaskResult] * 2


def test_an_id_sorts_by_its_time(board: Any) -> None:
    results = [board.add.enqueue(1) for _ in range(3)]
    assert [UUID(result.id).version for result in results] == [7, 7, 7]
    assert sorted(result.id for result in results) == [result.id for result in results]


def test_what_became_a_list_on_the_way_is_no_key(board: Any, use: Any, worker: Worker) -> None:
    use(MAX_ATTEMPTS=1)
    result = board.double.enqueue((1, 2))
    worker.work_once()
    result.refresh()
    assert result.status == Status.FAILED
    assert "TypeError: unhashable type: 'list'" in result.errors[0].traceback
    again = board.double.enqueue("a")
    worker.work_once()
    assert board.double.get_result(again.id).return_value == {"a": "aa"}


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_task_is_enqueued_after_the_commit_where_that_is_asked(
    driver: Driver, use: Any, transactional_db: None, is_rolled_back: bool
) -> None:
    board = use()
    with transaction.atomic():
        transaction.on_commit(partial(board.add.enqueue, 1, second=2))
        assert driver.queues() == []
        transaction.set_rollback(is_rolled_back)
    assert driver.queues() == ([] if is_rolled_back else ["default"])


# Results


def test_a_result_cannot_be_changed(board: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        board.add.enqueue(1).status = Status.FAILED


def test_a_running_task_has_no_return_value_yet(board: Any, worker: Worker) -> None:
    texts: list[str] = []

    class Probe(list[Any]):
        def append(self, result: Any) -> None:
            for one in (result, board.look.get_result(result.id)):
                with pytest.raises(ValueError, match="not finished") as caught:
                    _ = one.return_value
                texts.append(str(caught.value))

    board.seen, kept = Probe(), board.seen
    try:
        board.look.enqueue()
        worker.work_once()
    finally:
        board.seen = kept
    assert len(texts) == 2


def test_of_many_attempts_all_are_counted_and_the_last_errors_kept(
    board: Any, use: Any, worker: Worker, clock: Clock
) -> None:
    use(MAX_ATTEMPTS=23, BACKOFF=0)
    result = board.look.enqueue(fail_before=99)
    for _ in range(23):
        worker.work_once(now=clock.tick())
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (Status.FAILED, 23, 20)
    assert "attempt 4" in result.errors[0].traceback
    assert "attempt 23" in result.errors[-1].traceback
    assert result.worker_ids == ["not recorded"] * 3 + [worker.identity] * 20
