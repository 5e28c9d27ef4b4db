"""The backend for ``TASKS``: enqueueing is a dispatch, and a result is what the store knows of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ...dispatching.dispatch import NO_OPTIONS, Options, prepare, store
from ...operations.lookup import find_record
from .calls import prepared_call
from .compat import AnyResult, AnyTask, TaskResultDoesNotExist, task_backends, task_enqueued
from .places import place_of
from .results import new_result, result_of
from .rules import TaskRules


class JobQueueBackend(TaskRules):
    """Tasks run by ``queue_work``, on the tables and the connections of the JOBQUEUE setting."""

    supports_get_result = True

    def enqueue(  # type: ignore[override]  # the stubs bind the types of a call
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Store a task, in the caller's transaction where the store can join it.

        Raises InvalidTask, or, for arguments that do not fit the function or are not plain JSON, InvalidPayload, which
        is a TypeError and a ValueError. Nothing is stored then.
        """
        call = prepared_call(self, task, args, kwargs)
        prepared = prepare(call.definition, self._options_of(task), call.args, call.kwargs)
        store(prepared)
        result = new_result(
            task, str(prepared.job.id), call.args, call.kwargs, backend=self.alias, enqueued_at=datetime.now(UTC)
        )
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """The result of an id, from any process; TaskResultDoesNotExist when it is gone, or never was."""
        try:
            job_id = UUID(result_id)
        except (ValueError, TypeError, AttributeError):
            raise TaskResultDoesNotExist(result_id) from None
        record = find_record(job_id, self.checked_options.connection)
        place = None if record is None else place_of(record.name)
        if record is None or place is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(record, place)

    def _options_of(self, task: AnyTask) -> Options:
        given = {
            "queue": task.queue_name,
            "priority": int(task.priority),  # Django lets 1.0 and True through
            "available_at": task.run_after,
        }
        connection = self.checked_options.connection
        if connection is not None:
            given["connection"] = connection
        return NO_OPTIONS.changed(given)


def aliases() -> list[str]:
    """The names in TASKS under which tasks become jobs; what is wrong with another entry is for Django to say."""
    found = []
    for alias in task_backends.settings:
        with suppress(Exception):
            if isinstance(task_backends[alias], JobQueueBackend):
                found.append(alias)
    return found
