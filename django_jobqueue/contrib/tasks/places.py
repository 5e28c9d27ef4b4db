"""The names of tasks' jobs: the place of the function, and the backend, as in ``shop.tasks.send_receipt@default``.

So a function may be a job of ``@job`` as well, and a task may be enqueued through several backends.
"""

from __future__ import annotations

from typing import NamedTuple

from .compat import task_backends
from .rules import TaskRules

MARK = "@"  # no Python name has it


class Place(NamedTuple):
    """The dotted path of a task's function, and the alias of the backend that it was enqueued through."""

    path: str
    alias: str

    @property
    def name(self) -> str:
        return f"{self.path}{MARK}{self.alias}"

    @property
    def module(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def function(self) -> str:
        return self.path.rpartition(".")[2]


def place_of(name: str) -> Place | None:
    """The place in a job's name; None when it is no task's, or of no backend of ours that is configured."""
    path, mark, alias = name.partition(MARK)
    if not mark or alias not in task_backends.settings or not isinstance(task_backends[alias], TaskRules):
        return None
    return Place(path, alias)
