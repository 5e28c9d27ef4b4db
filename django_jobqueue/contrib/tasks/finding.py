"""From the place of a task to the Task.

What a stored name leads to is a Task in a module that this process has loaded by itself, or that lies below an app of
INSTALLED_APPS. No other module is imported, and nothing that is no Task is called, because a row says so.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from django.apps import apps

from ...exceptions import UnknownJob
from .compat import AnyTask, Task
from .places import Place


def find_task(place: Place) -> AnyTask:
    """The Task at a place; raises UnknownJob, or what importing its module raises."""
    task = _task_in(_module(place.module), place.path, place.function)
    if task is None:
        raise UnknownJob(
            f"There is no task {place.path!r}: the module {place.module!r} has no Task of that function, or was not "
            "imported. Define it at the top of a module of an installed app, or of one that an app's tasks.py imports."
        )
    return task


def is_found(task: AnyTask) -> bool:
    """Whether another process finds a task by this one's path, once it has the module.

    It may be another object: helpers wrap a task's function, and keep its name.
    """
    return _task_in(sys.modules.get(task.func.__module__), task.module_path, task.func.__name__) is not None


def _module(name: str) -> ModuleType | None:
    is_below_an_app = any(f"{name}.".startswith(f"{app.name}.") for app in apps.get_app_configs())
    if not is_below_an_app or not all(part.isidentifier() and not part.startswith("__") for part in name.split(".")):
        return sys.modules.get(name)
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and f"{name}.".startswith(f"{missing.name}."):
            return None  # the module itself, or a package on the way to it; any other is a mistake inside it
        raise
    except SystemExit as left:  # who asks may be a web server
        raise UnknownJob(f"The module {name!r} cannot be imported: it ends the process with {left!r}.") from left


def _task_in(module: ModuleType | None, path: str, function: str) -> AnyTask | None:
    """By the function's own name, else by any other: ``send_task = task(send)`` leaves the function as it is."""
    if module is None:
        return None
    for value in (getattr(module, function, None), *vars(module).values()):
        if isinstance(value, Task) and value.module_path == path:
            return value
    return None
