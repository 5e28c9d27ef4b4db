"""A task's attempt: its TaskResult and context, and Django's signals at its start and at its end.

``task_started`` is sent for every attempt. ``task_finished`` is sent once, when it is over: after its end was stored,
and for those only whose reservation was still theirs. Until then the result, and what the function raised, is kept
here, in the process that runs it. A task that became a dead letter because its worker was lost is read from the store
by whoever noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from ... import signals
from ...conf import get_settings
from ...exceptions import InvalidPayload, JobQueueError, JobTimeout, ReservationLost
from ...jobs.context import running_job
from ...jobs.errors import class_path, traceback_of
from ...jobs.payloads import encode_result
from ...jobs.records import AttemptHistory, JobRecord, Reservation
from ...operations.lookup import find_record
from ...running.attempt import Attempt
from .arguments import plain
from .compat import AnyResult, TaskContext, TaskResultStatus, task_backends, task_finished, task_started
from .places import Place, place_of
from .results import (
    error_of,
    errors_of,
    new_result,
    result_of,
    shown,
    started_at,
    task_as_dispatched,
    workers_of,
)


class InvalidReturnValue(InvalidPayload):
    """What a task returned is not plain enough to be kept; another attempt would return the same."""


@dataclass(slots=True)
class Running:
    """A task from its start until its end is stored."""

    result: AnyResult
    attempt: Attempt
    error: BaseException | None = None

    def may_show_its_error(self, failure: dict[str, Any]) -> bool:
        """Whether what the function raised is how the attempt ended, and holds no value that is masked."""
        error = self.error
        if error is None or class_path(error) != failure["exception_class"]:
            return False
        return traceback_of(error) == traceback_of(error, self.attempt.secrets)


_running: dict[tuple[UUID, int], Running] = {}  # by job and attempt


def runner(func: Callable[..., Any], place: Place, takes_context: bool) -> Callable[..., Any]:
    """The function that a worker calls for a task; awaitable where the task's own is."""

    def started(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Running, tuple[Any, ...]]:
        running = _start(place, args, kwargs)
        return running, (TaskContext(task_result=running.result), *args) if takes_context else args

    def run(*args: Any, **kwargs: Any) -> Any:
        running, taken = started(args, kwargs)
        try:
            return _returned(running, func(*taken, **kwargs))
        except BaseException as error:
            running.error = error
            raise

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        running, taken = started(args, kwargs)
        try:
            return _returned(running, await func(*taken, **kwargs))
        except BaseException as error:
            running.error = error
            raise

    return run_async if iscoroutinefunction(func) else run


def _start(place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Running:
    attempt = running_job.get()
    if not isinstance(attempt, Attempt):
        raise JobQueueError(f"The task {place.path!r} was called as a job outside of a worker; call its function.")
    job = attempt.job
    before = _history(job)
    result = new_result(
        task_as_dispatched(place, job.queue, -job.rank),
        str(job.id),
        list(args),
        kwargs,
        status=TaskResultStatus.RUNNING,
        enqueued_at=job.created_at,
        started_at=started_at(before) or attempt.started_at,
        last_attempted_at=attempt.started_at,
        errors=errors_of(before),
        worker_ids=[*workers_of(before, job.attempt - 1), job.worker],
    )
    running = _running[job.id, job.attempt] = Running(result, attempt)
    task_started.send_robust(type(task_backends[place.alias]), task_result=result)
    return running


def _history(job: Reservation) -> AttemptHistory:
    """The attempts before this one; a task that waits for its first, as most do, costs no query."""
    if job.attempt > 1:
        with suppress(Exception):  # no reason for the attempt to fail
            record = find_record(job.id, job.connection)
            if isinstance(record, JobRecord):
                return record.errors
    return AttemptHistory()


def _returned(running: Running, value: Any) -> Any:
    """What the function returned, plain; raises InvalidReturnValue."""
    try:
        returned = plain(value, "The return value")
        if returned is not None:
            encode_result(returned, get_settings().payload_limit)
    except InvalidPayload as error:
        raise InvalidReturnValue(str(error)) from None
    object.__setattr__(running.result, "_return_value", returned)
    return returned


def connect() -> None:
    """Hear of the ends of jobs."""
    for signal, receiver in (
        (signals.job_processed, _on_processed),
        (signals.job_failed, _on_failed),
        (signals.job_released, _forget),
        (signals.job_lost, _forget),
    ):
        signal.connect(receiver, dispatch_uid=f"{__name__}.{receiver.__name__}")


def _on_processed(*, id: UUID, attempt: int, elapsed: float, **kwargs: Any) -> None:
    running = _running.pop((id, attempt), None)
    if running is not None:
        _finish(running, TaskResultStatus.SUCCESSFUL, elapsed)


def _on_failed(*, id: UUID, name: str, connection: str, attempt: int, dead_lettered: bool, **failure: Any) -> None:
    running = _running.pop((id, attempt), None)
    if not dead_lettered:
        return
    place = place_of(name)
    if place is None:
        return
    error: BaseException = _error_of_ours(failure)
    if running is None:
        record = find_record(id, connection)
        if record is None:
            return
        result = result_of(record, place)
    else:
        result = running.result
        result.errors.append(error_of(**_described(failure)))
        if running.may_show_its_error(failure):
            error = running.error or error
        running.error = None
    try:
        raise error
    except BaseException:  # receivers, as Django's own log, ask sys.exc_info()
        if running is None:
            _send_finished(result)
        else:
            _finish(running, TaskResultStatus.FAILED, failure["elapsed"])
    finally:
        del error  # its traceback holds this frame: a cycle


def _forget(*, id: UUID, attempt: int, **kwargs: Any) -> None:
    _running.pop((id, attempt), None)


def _finish(running: Running, status: TaskResultStatus, elapsed: float) -> None:
    result = running.result
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", shown(running.attempt.started_at + timedelta(seconds=elapsed)))
    _send_finished(result)


def _send_finished(result: AnyResult) -> None:
    task_finished.send_robust(type(task_backends[result.backend]), task_result=result)


def _described(failure: dict[str, Any]) -> dict[str, str]:
    return {
        "exception_class": failure["exception_class"],
        "message": failure["exception_message"],
        "traceback": failure["traceback"],
    }


def _error_of_ours(failure: dict[str, Any]) -> JobQueueError:
    """For a failure of which no exception is at hand."""
    kind = _OURS.get(failure["exception_class"])
    if kind is not None:
        return kind(failure["exception_message"])
    return JobQueueError(f"{failure['exception_class']}: {failure['exception_message']}")


_OURS = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (JobTimeout, ReservationLost)}
