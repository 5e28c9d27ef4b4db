"""Finding handlers: the modules that MODULES names, of every installed app, imported once and only when needed.

Never from ``AppConfig.ready()``: a broken ``jobs.py`` stops the worker and not the web site.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from threading import RLock

from django.apps import apps

from ..conf import get_settings
from ..jobs.definition import Definition
from ..jobs.registry import registry

OWN_APP = "django_jobqueue"

_lock = RLock()
_loaded = False


def load_handlers() -> None:
    """Import the job modules of all apps; a missing one is fine, an error inside one is raised as it is."""
    global _loaded
    if _loaded:
        return
    with _lock:
        for module in job_modules():
            import_module(module)
        _loaded = True


def job_modules() -> list[str]:
    """The dotted paths of the job modules that exist."""
    found = []
    for app in apps.get_app_configs():
        if app.name == OWN_APP or app.module is None:
            continue
        for name in get_settings().modules:
            path = f"{app.name}.{name}"
            if _exists(path):
                found.append(path)
    return found


def _exists(path: str) -> bool:
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError as error:
        # A package on the way to it is missing, or is a module; any other that is missing is somebody's mistake.
        if error.name is not None and f"{path}.".startswith(f"{error.name}."):
            return False
        raise


def resolve(name: str) -> Definition:
    """The definition of a job's name, after looking once in the job modules; raises UnknownJob."""
    definition = registry.find(name)
    if definition is None:
        load_handlers()
        definition = registry.get(name)
    return definition
