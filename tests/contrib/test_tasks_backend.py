"""Django's tasks on the queue: the contract of ``django.tasks``, on every driver."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from datetime import timedelta
from typing import Any
from uuid import UUID

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from django_jobqueue import Exponential, JobCancelled, get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.jobs.registry import registry
from django_jobqueue.operations import failed_jobs
from django_jobqueue.operations.lookup import cancel
from django_jobqueue.running.worker import Worker
from tests.contrib.conftest import BACKEND
from tests.contrib.names import CARRIES_OPTIONS, DoesNotExist, InvalidTaskBackend, Mismatch, Status, task, tasks
from tests.drivers.contract import Clock


def run_all(worker: Worker, clock: Clock, attempts: int = 1) -> None:
    for _ in range(attempts):
        worker.work_once(now=clock.tick(3600))


# Enqueueing


def test_the_backend_supports_all_that_a_backend_can(board: Any) -> None:
    backend = tasks.default_task_backend
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_enqueue_returns_a_result_that_is_ready(board: Any) -> None:
    result = board.add.enqueue(2, second=3)
    assert result.status == Status.READY
    assert isinstance(result.id, str)
    assert len(result.id) < 64
    assert (result.args, result.kwargs, result.backend) == ([2], {"second": 3}, "default")
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
    assert result.task is board.add
    assert timezone.is_aware(result.enqueued_at)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_a_task_runs_and_its_result_can_be_got(driver: Driver, use: Any, worker: Worker) -> None:
    board = use()
    result = board.add.enqueue(2, second=3)
    assert worker.work_once()
    found = tasks.default_task_backend.get_result(result.id)
    assert (found.status, found.return_value, found.is_finished) == (Status.SUCCESSFUL, 5, True)
    assert (found.args, found.kwargs, found.errors) == ([2], {"second": 3}, [])
    assert found.task == board.add
    assert found.worker_ids == [worker.identity]
    assert found.started_at == found.last_attempted_at
    assert found.enqueued_at <= found.started_at <= found.finished_at


def test_refresh_brings_a_result_up_to_date(board: Any, worker: Worker) -> None:
    result = board.add.enqueue(2)
    worker.work_once()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (Status.SUCCESSFUL, 2, 1)


def test_everything_has_an_async_twin(board: Any, worker: Worker) -> None:
    result = async_to_sync(board.add.aenqueue)(1, second=1)
    worker.work_once()
    async_to_sync(result.arefresh)()
    assert result.return_value == 2
    assert async_to_sync(board.add.aget_result)(result.id).return_value == 2
    assert async_to_sync(tasks.default_task_backend.aget_result)(result.id).id == result.id


def test_a_coroutine_function_runs(board: Any, worker: Worker) -> None:
    result = board.add_later.enqueue(2, 3)
    worker.work_once()
    assert board.add_later.get_result(result.id).return_value == 5


def test_tuples_arrive_and_return_as_lists(driver: Driver, use: Any, worker: Worker) -> None:
    board = use()
    result = board.echo.enqueue((1, (2,)), range(2), key={"a": (3,)})
    assert (result.args, result.kwargs) == ([[1, [2]], [0, 1]], {"key": {"a": [3]}})
    worker.work_once()
    found = board.echo.get_result(result.id)
    assert (found.args, found.kwargs) == (result.args, result.kwargs)
    assert board.seen == [(([1, [2]], [0, 1]), {"key": {"a": [3]}})]
    assert found.return_value == [[[1, [2]], [0, 1]], {"key": {"a": [3]}}]


def test_queue_and_priority_are_those_of_the_task(board: Any, worker: Worker) -> None:
    results = [
        board.send.enqueue("7"),
        board.send.using(priority=50).enqueue("50"),
        board.send.using(queue_name="low").enqueue("low"),
    ]
    found = [board.send.get_result(result.id).task for result in results]
    assert [(task.queue_name, task.priority) for task in found] == [("mail", 7), ("mail", 50), ("low", 7)]
    while worker.work_once():
        pass
    assert board.seen.index("50") < board.seen.index("7")


@pytest.mark.parametrize("priority", [1.0, True])
def test_a_priority_that_is_whole_is_taken(board: Any, priority: Any) -> None:
    result = board.add.using(priority=priority).enqueue(1)
    assert board.add.get_result(result.id).task.priority == 1


def test_run_after_is_waited_for(board: Any, worker: Worker, clock: Clock) -> None:
    due = timezone.now() + timedelta(hours=1)
    result = board.add.using(run_after=due).enqueue(1)
    found = board.add.get_result(result.id)
    assert (found.status, found.task.run_after) == (Status.READY, due)
    assert not worker.work_once(now=clock.now)
    assert worker.work_once(now=clock.tick(3700))
    assert board.add.get_result(result.id).status == Status.SUCCESSFUL


def test_run_after_may_be_a_time_from_now(board: Any, worker: Worker, clock: Clock, settings: Any) -> None:
    for uses_zones in (True, False):
        settings.USE_TZ = uses_zones
        before = timezone.now()
        result = board.add.using(run_after=timedelta(hours=1)).enqueue(1)
        found = board.add.get_result(result.id)
        assert before + timedelta(hours=1) <= found.task.run_after <= timezone.now() + timedelta(hours=1)
        assert found.status == Status.READY
    assert not worker.work_once(now=clock.now)
    assert worker.work_once(now=clock.tick(3700))


def test_moments_are_naive_without_time_zones(board: Any, worker: Worker, settings: Any) -> None:
    settings.USE_TZ = False
    result = board.add.enqueue(1)
    worker.work_once()
    found = board.add.get_result(result.id)
    assert timezone.is_naive(found.finished_at)
    assert abs(found.enqueued_at - result.enqueued_at) < timedelta(minutes=1)


def test_a_task_whose_transaction_is_rolled_back_is_gone(database: Driver, use: Any) -> None:
    board = use()
    results: list[Any] = []

    def enqueue_and_fail() -> None:
        with transaction.atomic():
            results.append(board.add.enqueue(1))
            assert board.add.get_result(results[0].id).status == Status.READY
            raise LookupError

    with pytest.raises(LookupError):
        enqueue_and_fail()
    with pytest.raises(DoesNotExist):
        results[0].refresh()


def test_a_task_is_copied(board: Any) -> None:
    assert copy.deepcopy(board.send) == board.send


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled from Django 6.1 on")
def test_a_task_is_pickled(board: Any) -> None:
    result = board.send.using(priority=3).enqueue("x")
    copied = pickle.loads(pickle.dumps(result))  # noqa: S301 - our own bytes
    assert (copied.task, copied.id) == (result.task, result.id)


# Attempts


def test_an_attempt_that_fails_is_followed_by_others(
    driver: Driver, use: Any, worker: Worker, make_worker: Any, clock: Clock
) -> None:
    board = use()
    other = make_worker()
    result = board.look.enqueue(fail_before=3)
    run_all(worker, clock)
    waiting = board.look.get_result(result.id)
    assert (waiting.status, waiting.attempts, waiting.task.run_after) == (Status.READY, 1, None)
    run_all(other, clock)
    run_all(worker, clock)
    found = board.look.get_result(result.id)
    assert (found.status, found.return_value, found.attempts) == (Status.SUCCESSFUL, 3, 3)
    assert found.worker_ids == [worker.identity, other.identity, worker.identity]
    assert [error.exception_class for error in found.errors] == [OSError, OSError]
    assert "attempt 2" in found.errors[1].traceback
    assert found.started_at < found.last_attempted_at


def test_the_context_tells_of_the_attempt(board: Any, worker: Worker, make_worker: Any, clock: Clock) -> None:
    other = make_worker()
    result = board.look.enqueue(fail_before=2)
    run_all(worker, clock)
    run_all(other, clock)
    first, second = board.seen
    assert first.id == second.id == result.id
    assert (first.worker_ids, second.worker_ids) == (
        [worker.identity],
        [worker.identity, other.identity],
    )
    assert [error.exception_class for error in second.errors] == [OSError]
    assert second.started_at < second.last_attempted_at
    assert second.kwargs == {"fail_before": 2}


def test_a_running_task_says_so(board: Any, worker: Worker) -> None:
    statuses: list[Any] = []

    class Probe(list[Any]):
        def append(self, result: Any) -> None:
            statuses.append((result.status, board.look.get_result(result.id)))

    board.seen, kept = Probe(), board.seen
    try:
        board.look.enqueue()
        worker.work_once()
    finally:
        board.seen = kept
    [(status, stored)] = statuses
    assert status == stored.status == Status.RUNNING
    assert stored.worker_ids == [worker.identity]
    assert stored.started_at == stored.last_attempted_at


def test_a_task_without_attempts_left_has_failed(driver: Driver, use: Any, worker: Worker, clock: Clock) -> None:
    board = use(MAX_ATTEMPTS=2)
    result = board.fail.enqueue()
    run_all(worker, clock, attempts=2)
    found = board.fail.get_result(result.id)
    assert (found.status, found.attempts, found.is_finished) == (Status.FAILED, 2, True)
    assert [error.exception_class for error in found.errors] == [KeyError, KeyError]
    assert "no stock" in found.errors[0].traceback
    assert found.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = found.return_value


def test_a_task_that_leaves_the_process_has_failed(board: Any, worker: Worker, clock: Clock) -> None:
    result = board.leave.enqueue()
    run_all(worker, clock, attempts=3)
    found = board.leave.get_result(result.id)
    assert found.status == Status.FAILED
    assert [error.exception_class for error in found.errors] == [SystemExit] * 3


def test_a_task_whose_worker_was_lost_has_failed_with_the_cause(
    driver: Driver, use: Any, worker: Worker, clock: Clock
) -> None:
    board = use(MAX_ATTEMPTS=1)
    result = board.add.enqueue(1)
    driver.reserve("default", "lost:1", ReserveLimit(rows=1, max_attempts=1), retry_after=30, now=clock.now)
    worker.work_once(now=clock.tick(60))
    found = board.add.get_result(result.id)
    assert (found.status, found.worker_ids) == (Status.FAILED, ["lost:1"])
    assert issubclass(found.errors[0].exception_class, Exception)
    assert "was lost" in found.errors[0].traceback


def test_a_person_retries_a_failed_task(board: Any, worker: Worker, clock: Clock, use: Any) -> None:
    use(MAX_ATTEMPTS=1)
    result = board.look.enqueue(fail_before=2)
    run_all(worker, clock)
    letters = failed_jobs.newest()
    assert [one.status for one in failed_jobs.retry(letters)] == ["retried"]
    found = board.look.get_result(result.id)
    assert (found.status, found.attempts) == (Status.READY, 0)
    assert len(found.errors) == 1


@pytest.mark.parametrize("kind", ["nan", "bytes", "set", "key"])
def test_a_return_value_that_cannot_be_kept_fails_the_task_at_once(board: Any, worker: Worker, kind: str) -> None:
    result = board.give.enqueue(kind)
    worker.work_once()
    found = board.give.get_result(result.id)
    assert (found.status, found.attempts) == (Status.FAILED, 1)
    assert issubclass(found.errors[0].exception_class, TypeError)
    assert "The return value" in found.errors[0].traceback


# Options


def test_options_of_the_backend_are_those_of_its_tasks(driver: Driver, use: Any, settings: Any) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {**settings.JOBQUEUE["CONNECTIONS"], "other": {"DRIVER": "memory"}},
    }
    backoff = Exponential(base=1)
    board = use(CONNECTION="other", MAX_ATTEMPTS=4, BACKOFF=backoff, TIMEOUT=9, KEEP_RESULTS=60)
    result = board.add.enqueue(1)
    job = get_job(result.id, connection="other")
    assert job is not None
    assert (job.name, job.max_attempts) == ("tests.contrib.board.add@default", 4)
    definition = registry.get(job.name)
    assert (definition.backoff, definition.timeout, definition.keep_result) == (backoff, 9, 60)
    assert board.add.get_result(result.id).status == Status.READY


@pytest.mark.skipif(not CARRIES_OPTIONS, reason="@task of Django 6.0 takes no further arguments")
def test_a_task_may_have_options_of_its_own(board: Any, use: Any) -> None:
    from django_jobqueue.contrib.tasks.definitions import definition_of
    from django_jobqueue.contrib.tasks.places import Place

    use(MAX_ATTEMPTS=9, TIMEOUT=60)
    given = task(max_attempts=4, backoff=[1, 2], timeout=None)(board.both)
    definition = definition_of(given, Place(given.module_path, "default"))
    assert (definition.max_attempts, definition.backoff, definition.timeout) == (4, (1.0, 2.0), None)
    assert hash(given) is not None
    assert given.using(priority=5).max_attempts == 4


def test_a_task_is_enqueued_through_another_backend(board: Any, worker: Worker) -> None:
    first = board.through_mail.enqueue()
    second = board.add.using(backend="mail", queue_name="anything").enqueue(1)
    assert (first.backend, second.backend) == ("mail", "mail")
    while worker.work_once():
        pass
    found = tasks.task_backends["mail"].get_result(second.id)
    assert (found.return_value, found.backend, found.task.queue_name) == (1, "mail", "anything")
    assert board.through_mail.get_result(first.id).return_value == "mail"


def test_a_backend_enqueues_a_task_of_another(board: Any, worker: Worker) -> None:
    backend = tasks.task_backends["mail"]
    result = backend.enqueue(board.add, (1,), {"second": 2})
    assert worker.work_once()
    assert (result.backend, backend.get_result(result.id).return_value) == ("mail", 3)


def test_a_function_may_be_a_job_and_a_task(board: Any, worker: Worker) -> None:
    board.both_job.dispatch("job")
    result = board.both_task.enqueue("task")
    while worker.work_once():
        pass
    assert board.both_task.get_result(result.id).return_value == "TASK"


def test_wrong_options_are_errors_of_the_checks_and_of_enqueue(board: Any, use: Any) -> None:
    use(MAX_ATTEMPTS=0, COLOUR="red", CONNECTION="lost", KEEP_RESULTS=0)
    found = list(tasks.default_task_backend.check())
    assert [message.id for message in found] == ["django_jobqueue.E101"] * 4
    text = " ".join(str(message.msg) for message in found)
    assert all(word in text for word in ("MAX_ATTEMPTS", "COLOUR", "'lost'", "KEEP_RESULTS"))
    with pytest.raises(InvalidTaskBackend, match="MAX_ATTEMPTS"):
        board.add.enqueue(1)


def test_a_broken_setting_of_the_queue_is_not_for_the_checks_of_tasks(use: Any, settings: Any) -> None:
    use(CONNECTION="default")
    settings.JOBQUEUE = {"COLOUR": "red"}
    assert list(tasks.default_task_backend.check()) == []


def test_a_backend_without_the_app_is_an_error_of_the_checks(board: Any, settings: Any) -> None:
    assert list(tasks.default_task_backend.check()) == []
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django_jobqueue"]
    assert [message.id for message in tasks.default_task_backend.check()] == ["django_jobqueue.E102"]


def test_a_task_may_be_defined_before_the_apps_are_ready() -> None:
    program = f"""
import sys
from os.path import join
from django.conf import settings
settings.configure(TASKS={{"default": {{"BACKEND": {BACKEND!r}}}}})
from {tasks.__name__} import task
assert type(task(join)).__name__ == "JobQueueTask"
assert "django_jobqueue.models" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# Results


def test_there_is_no_result_of_an_id_that_is_none(board: Any) -> None:
    for result_id in ("", "123", "0198d1c0-0000-7000-8000-000000000000", None, 7):
        with pytest.raises(DoesNotExist):
            tasks.default_task_backend.get_result(result_id)


def test_there_is_no_result_of_a_job_that_is_no_task(board: Any) -> None:
    dispatched = board.both_job.dispatch("job")
    with pytest.raises(DoesNotExist):
        tasks.default_task_backend.get_result(str(dispatched.id))


def test_a_task_that_was_cancelled_has_failed_with_the_cause(driver: Driver, use: Any) -> None:
    board = use()
    result = board.add.using(queue_name="mail", priority=5).enqueue(1, second=(2,))
    assert cancel(UUID(result.id), connection="default")
    found = board.add.get_result(result.id)
    assert (found.status, found.is_finished, found.attempts, found.worker_ids) == (Status.FAILED, True, 0, [])
    assert [error.exception_class for error in found.errors] == [JobCancelled]
    assert "was cancelled" in found.errors[0].traceback
    assert (found.args, found.kwargs) == ([1], {"second": [2]})
    assert (found.task.queue_name, found.task.priority) == ("mail", 5)
    assert (found.started_at, found.last_attempted_at) == (None, None)
    assert found.enqueued_at <= found.finished_at
    with pytest.raises(ValueError, match="failed"):
        _ = found.return_value
    result.refresh()
    assert result.status == Status.FAILED


def test_a_task_that_was_cancelled_after_an_attempt_has_the_error_of_that_too(
    driver: Driver, use: Any, worker: Worker
) -> None:
    board = use()
    result = board.fail.enqueue()
    worker.work_once()
    assert cancel(UUID(result.id), connection="default")
    found = board.fail.get_result(result.id)
    assert [error.exception_class for error in found.errors] == [KeyError, JobCancelled]
    assert (found.attempts, found.worker_ids) == (1, [worker.identity])
    assert found.started_at == found.last_attempted_at < found.finished_at


def test_a_task_without_its_function_that_was_cancelled_has_failed(board: Any, monkeypatch: Any) -> None:
    result = board.add.enqueue(1)
    monkeypatch.delattr(board, "add")
    assert cancel(UUID(result.id), connection="default")
    assert tasks.default_task_backend.get_result(result.id).status == Status.FAILED


def test_options_that_are_wrong_keep_nobody_from_cancelling(board: Any, use: Any) -> None:
    result = board.add.enqueue(1)
    use(MAX_ATTEMPTS=0)
    assert cancel(UUID(result.id), connection="default")
    job = get_job(result.id)
    assert job is not None
    assert job.state == "cancelled"


def test_a_cancelled_task_is_kept_as_long_as_a_result(board: Any, use: Any, memory: Driver, clock: Clock) -> None:
    use(KEEP_RESULTS=600)
    result = board.add.enqueue(1)
    assert cancel(UUID(result.id), connection="default")
    assert memory.prune_results(now=clock.tick(500)) == 0
    assert memory.prune_results(now=clock.tick(200)) == 1
    with pytest.raises(DoesNotExist):
        result.refresh()


def test_there_is_no_result_of_a_failed_task_that_was_forgotten(board: Any, use: Any, worker: Worker) -> None:
    use(MAX_ATTEMPTS=1)
    result = board.fail.enqueue()
    worker.work_once()
    assert [one.status for one in failed_jobs.forget(failed_jobs.newest())] == ["forgotten"]
    with pytest.raises(DoesNotExist):
        result.refresh()


def test_a_result_of_another_task_is_a_mismatch(board: Any) -> None:
    result = board.add.enqueue(1)
    with pytest.raises(Mismatch):
        board.echo.get_result(result.id)


def test_a_result_outlives_its_function(driver: Driver, use: Any, worker: Worker, monkeypatch: Any) -> None:
    board = use()
    result, failed = board.add.enqueue(1), board.fail.using(backend="mail", queue_name="default").enqueue()
    while worker.work_once():
        pass
    monkeypatch.delattr(board, "add")
    monkeypatch.delattr(board, "fail")
    found = tasks.default_task_backend.get_result(result.id)
    assert (found.return_value, found.task.module_path) == (1, "tests.contrib.board.add")
    found.refresh()
    assert tasks.default_task_backend.get_result(failed.id).status == Status.FAILED


def test_a_result_outlives_its_queue(board: Any, worker: Worker, settings: Any) -> None:
    result = board.send.enqueue("x")
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}
    assert board.send.get_result(result.id).task.queue_name == "mail"


def test_a_task_without_its_function_fails_and_says_so(
    board: Any, worker: Worker, clock: Clock, monkeypatch: Any
) -> None:
    result = board.add.enqueue(1)
    monkeypatch.delattr(board, "add")
    run_all(worker, clock, attempts=3)
    found = tasks.default_task_backend.get_result(result.id)
    assert found.status == Status.FAILED
    assert "There is no task 'tests.contrib.board.add'" in found.errors[0].traceback
