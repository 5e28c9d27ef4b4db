"""How a task runs as a job: its definition, as a worker finds it by the name of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...exceptions import InvalidOption
from ...jobs.definition import Definition, Unset, define
from ...jobs.retry import Backoff
from .compat import AnyTask, InvalidTask, task_backends
from .finding import find_task
from .places import Place, place_of
from .running import InvalidReturnValue, runner


def find_definition(name: str) -> Definition | None:
    """The definition of a task's job; None for a name of another kind, UnknownJob when there is no such task."""
    place = place_of(name)
    return None if place is None else definition_of(find_task(place), place)


def keep_result(name: str) -> float | None:
    """For how many seconds a task's job keeps its result, also when its function is gone."""
    place = place_of(name)
    if place is None:
        return None
    backend: Any = task_backends[place.alias]
    keep: float = backend.keep_results
    return keep


def definition_of(task: AnyTask, place: Place) -> Definition:
    """The definition of ``task``; raises InvalidTask for one that cannot be a job."""
    backend: Any = task_backends[place.alias]
    options = backend.checked_options
    max_attempts, backoff = getattr(task, "max_attempts", None), getattr(task, "backoff", None)
    timeout = getattr(task, "timeout", options.timeout)
    try:
        return _definition(
            task.func,
            place,
            bool(task.takes_context),
            options.max_attempts if max_attempts is None else max_attempts,
            options.backoff if backoff is None else backoff,
            options.timeout if isinstance(timeout, Unset) else timeout,
            options.keep_results,
        )
    except InvalidOption as error:
        raise InvalidTask(str(error)) from None


@lru_cache(maxsize=1024)  # every enqueue and every attempt asks; more than any project has tasks
def _definition(
    func: Callable[..., Any],
    place: Place,
    takes_context: bool,
    max_attempts: int | None,
    backoff: Backoff | None,
    timeout: float | Unset | None,
    keep_results: float,
) -> Definition:
    options = {"max_attempts": max_attempts, "backoff": backoff, "timeout": timeout, "keep_result": keep_results}
    defined = define(func, {"name": place.name, "takes_context": takes_context, **options})
    run = runner(func, place, takes_context)
    # The context is a TaskContext, which the runner makes; the signature is without it already.
    return replace(defined, func=run, takes_context=False, give_up_on=(InvalidReturnValue,))
