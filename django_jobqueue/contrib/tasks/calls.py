"""A call of a task, checked as a whole before anything is stored: the same for the backend and its doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...jobs.definition import Definition
from .arguments import plain
from .compat import AnyTask, InvalidTask
from .definitions import definition_of
from .finding import is_found
from .places import Place
from .rules import TaskRules


class Call(NamedTuple):
    """How the task runs, and its arguments as it will get them."""

    definition: Definition
    args: list[Any]
    kwargs: dict[str, Any]


def prepared_call(backend: TaskRules, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The checked call; raises InvalidTask, or InvalidPayload for arguments that do not fit or would not survive."""
    backend.validate_task(task)
    if not is_found(task):
        raise InvalidTask(
            f"A worker could not find the task {task.module_path!r}: its module has no Task of that function. Keep "
            "what @task returns under a name at the top of the module, with no other decorator above it."
        )
    definition = definition_of(task, Place(task.module_path, backend.alias))
    definition.bind(args, kwargs)
    names = definition.parameter_names
    return Call(
        definition,
        [
            plain(value, names[index] if index < len(names) else f"argument {index + 1}")
            for index, value in enumerate(args)
        ],
        {name: plain(value, name) for name, value in kwargs.items()},
    )
