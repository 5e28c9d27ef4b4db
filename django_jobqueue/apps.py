"""The composition root: connects what listens. It queries nothing and imports no handler."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from . import checks, embed, logs


class JobQueueConfig(AppConfig):
    name = "django_jobqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.connect()
        logs.connect()
        embed.start_under_runserver()
