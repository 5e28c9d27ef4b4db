"""Django's own tasks on this queue: backends for the ``TASKS`` setting.

Importable before the apps are ready, since the first ``@task`` of a project imports the backend. Importing it makes
the tasks' jobs known to the workers of this process.
"""

from __future__ import annotations

from ...jobs.registry import Resolver, registry
from . import running
from .backend import JobQueueBackend, aliases
from .definitions import find_definition, keep_result
from .doubles import DummyBackend, ImmediateBackend
from .task import JobQueueTask

__all__ = ["DummyBackend", "ImmediateBackend", "JobQueueBackend", "JobQueueTask"]

registry.add_resolver(Resolver(find_definition, keep_result, aliases))
running.connect()
