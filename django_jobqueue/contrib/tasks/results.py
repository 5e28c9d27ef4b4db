"""TaskResults: what the store knows of a job, in the words of Django's tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import Any, NoReturn

from django.conf import settings
from django.utils.timezone import make_naive

from ...exceptions import InvalidPayload, JobCancelled, UnknownJob
from ...jobs.definition import UNSET
from ...jobs.errors import class_path
from ...jobs.payloads import decode, decode_result
from ...jobs.records import CANCELLED, FAILED, RESERVED, SCHEDULED, AttemptHistory, JobRecord, ResultRecord
from ...operations.lookup import WAS_CANCELLED
from .compat import AnyResult, AnyTask, TaskError, TaskResult, TaskResultStatus
from .finding import find_task
from .places import Place
from .task import JobQueueTask

NOT_RECORDED = "not recorded"  # the worker of an attempt that is older than those whose records are kept


def result_of(record: JobRecord | ResultRecord, place: Place) -> AnyResult:
    """The result of a stored task; whatever is in the row, it can be made."""
    if isinstance(record, JobRecord):
        return _of_job(record, place)
    return _of_cancelled(record, place) if record.state == CANCELLED else _of_success(record, place)


def _of_success(record: ResultRecord, place: Place) -> AnyResult:
    task = task_as_dispatched(place, record.queue, record.priority)
    result = new_result(
        task,
        str(record.id),
        *_arguments(record),
        status=TaskResultStatus.SUCCESSFUL,
        enqueued_at=record.created_at,
        started_at=started_at(record.errors) or record.started_at,
        last_attempted_at=record.started_at,
        finished_at=record.finished_at,
        errors=errors_of(record.errors),
        worker_ids=[*workers_of(record.errors, record.attempts - 1), record.worker],
    )
    with suppress(InvalidPayload):
        object.__setattr__(result, "_return_value", decode_result(record.value))
    return result


def _of_cancelled(record: ResultRecord, place: Place) -> AnyResult:
    """It has failed, and the last of its errors says why."""
    return new_result(
        task_as_dispatched(place, record.queue, record.priority),
        str(record.id),
        *_arguments(record),
        status=TaskResultStatus.FAILED,
        enqueued_at=record.created_at,
        started_at=started_at(record.errors),
        last_attempted_at=started_at(record.errors, -1),
        finished_at=record.finished_at,
        errors=[*errors_of(record.errors), error_of(class_path(JobCancelled()), WAS_CANCELLED, "")],
        worker_ids=workers_of(record.errors, record.attempts),
    )


def _of_job(record: JobRecord, place: Place) -> AnyResult:
    is_running = record.state == RESERVED
    # Of a job that failed before, it is the backoff that it waits for.
    run_after = record.available_at if record.state == SCHEDULED and not record.errors.total else None
    workers = [record.worker] if is_running else []
    return new_result(
        task_as_dispatched(place, record.queue, record.priority, run_after),
        str(record.id),
        *_arguments(record),
        status=_status(record.state),
        enqueued_at=record.created_at,
        started_at=started_at(record.errors) or (record.reserved_at if is_running else None),
        last_attempted_at=record.reserved_at if is_running else started_at(record.errors, -1),
        finished_at=record.failed_at,
        errors=errors_of(record.errors),
        worker_ids=[*workers_of(record.errors, record.attempts - len(workers)), *workers],
    )


def new_result(task: AnyTask, id: str, args: list[Any], kwargs: dict[str, Any], **known: Any) -> AnyResult:
    """A TaskResult; what is not ``known`` has not happened yet."""
    values: dict[str, Any] = {
        "backend": task.backend,
        "status": TaskResultStatus.READY,
        "enqueued_at": None,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "errors": [],
        "worker_ids": [],
        **known,
    }
    for name in ("enqueued_at", "started_at", "last_attempted_at", "finished_at"):
        values[name] = shown(values[name])
    return TaskResult(task=task, id=id, args=args, kwargs=kwargs, **values)


def task_as_dispatched(place: Place, queue: str, priority: int, run_after: datetime | None = None) -> AnyTask:
    """The Task at a place, as it was when it was enqueued; a stand-in of the same path where it is gone.

    Not validated: a result is there to be read, whatever became of QUEUES since.
    """
    given = {
        "backend": place.alias,
        "queue_name": queue,
        "priority": priority,
        "run_after": shown(run_after),
    }
    try:
        task = find_task(place)
    except Exception:  # gone, or its module is broken
        return _made(JobQueueTask, {**_GONE, "func": _stand_in(place), **given})
    return _made(type(task), {**{field.name: getattr(task, field.name) for field in fields(task)}, **given})


def _made(kind: type[AnyTask], values: dict[str, Any]) -> AnyTask:
    task = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(task, name, value)
    return task


def _stand_in(place: Place) -> Callable[..., NoReturn]:
    def gone(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnknownJob(f"There is no task {place.path!r} any more.")

    gone.__module__ = place.module
    gone.__name__ = gone.__qualname__ = place.function
    return gone


_GONE = {"takes_context": False, "max_attempts": None, "backoff": None, "timeout": UNSET}


def errors_of(history: AttemptHistory) -> list[TaskError]:
    return [error_of(record.exception_class, record.message, record.traceback) for record in history.last]


def error_of(exception_class: str, message: str, traceback: str) -> TaskError:
    """An error whose class can be imported: ours leave out the module of Python's own classes."""
    path = exception_class if "." in exception_class else f"builtins.{exception_class}"
    return TaskError(exception_class_path=path, traceback=traceback or f"{exception_class}: {message}")


def workers_of(history: AttemptHistory, attempts: int) -> list[str]:
    """Who ran the last ``attempts`` that are in the history: one for each, so that their number is right."""
    known = [record.worker for record in history.last[-attempts:]] if attempts > 0 else []
    return [NOT_RECORDED] * (attempts - len(known)) + known


def shown(moment: datetime | None) -> datetime | None:
    """A moment as the project has them: naive local time under ``USE_TZ = False``."""
    if moment is None or settings.USE_TZ:
        return moment
    return make_naive(moment)


def _status(state: str) -> TaskResultStatus:
    if state == FAILED:
        return TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if state == RESERVED else TaskResultStatus.READY


def _arguments(record: JobRecord | ResultRecord) -> tuple[list[Any], dict[str, Any]]:
    try:
        return decode(record.payload, record.format)
    except InvalidPayload:
        return [], {}


def started_at(history: AttemptHistory, index: int = 0) -> datetime | None:
    """When the first of the recorded attempts started; None without one, or when nothing can read it."""
    with suppress(IndexError, TypeError, ValueError):
        return datetime.fromisoformat(history.last[index].started)
    return None
