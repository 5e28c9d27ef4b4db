"""Django's own backends for tests and development, which take and refuse what the real one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import compat
from .calls import prepared_call
from .compat import AnyResult, AnyTask
from .rules import TaskRules


class ImmediateBackend(TaskRules, compat.ImmediateBackend):
    """Runs a task at once, in the caller's thread, once, whenever it is meant to run."""

    def enqueue(  # type: ignore[override]  # the stubs bind the types of a call
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        call = prepared_call(self, task, args, kwargs)
        return super().enqueue(task, call.args, call.kwargs)


class DummyBackend(TaskRules, compat.DummyBackend):
    """Runs nothing, and keeps the results of what was enqueued in ``results``."""

    def enqueue(  # type: ignore[override]  # the stubs bind the types of a call
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        call = prepared_call(self, task, args, kwargs)
        return super().enqueue(task, call.args, call.kwargs)
