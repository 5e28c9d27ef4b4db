"""The composition root: connects what listens. It queries nothing and imports no handler."""

from __future__ import annotations

from contextlib import suppress

from django.apps import AppConfig
from django.conf import global_settings, settings
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from . import checks, embed, logs


class JobQueueConfig(AppConfig):
    name = "django_jobqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.connect()
        logs.connect()
        _import_task_backends()
        embed.start_under_runserver()


def _import_task_backends() -> None:
    """One of ours tells the registry of its tasks when it is imported, and a worker enqueues none to import it for.

    Whatever else TASKS names, and what is wrong with it, is for Django to say when somebody uses it.
    """
    configured = getattr(settings, "TASKS", None)
    if not isinstance(configured, dict) or configured is getattr(global_settings, "TASKS", None):
        return
    for entry in configured.values():
        with suppress(Exception):
            import_string(entry["BACKEND"])
