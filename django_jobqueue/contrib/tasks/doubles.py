"""Django's own backends for tests and development, which take and refuse what the real one does."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from . import compat
from .calls import prepared_call
from .compat import AnyResult, AnyTask, TaskResultDoesNotExist
from .rules import TaskRules

KEPT = 1000  # of one thread, in a development server that may run for weeks


class ImmediateBackend(TaskRules, compat.ImmediateBackend):
    """Runs a task at once, in the caller's thread, once, whenever it is meant to run.

    The last results are kept, so that code that refreshes one works; they are those of this thread.
    """

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: deque[AnyResult] = deque(maxlen=KEPT)

    def enqueue(  # type: ignore[override]  # the stubs bind the types of a call
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        call = prepared_call(self, task, args, kwargs)
        result = super().enqueue(task, call.args, call.kwargs)
        self.results.append(result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        for result in self.results:
            if result.id == result_id:
                return result
        raise TaskResultDoesNotExist(result_id)


class DummyBackend(TaskRules, compat.DummyBackend):
    """Runs nothing, and keeps the results of what was enqueued in ``results``."""

    def enqueue(  # type: ignore[override]  # the stubs bind the types of a call
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        call = prepared_call(self, task, args, kwargs)
        return super().enqueue(task, call.args, call.kwargs)
