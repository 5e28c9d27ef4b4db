"""Pages for operators. Imported by the admin's own autodiscovery only, so that a project can do without it."""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured

from ..conf import get_settings
from ..models import FailedJob, Job, Worker
from .failed_jobs import FailedJobAdmin
from .jobs import JobAdmin
from .workers import WorkerAdmin


def register(site: admin.AdminSite = admin.site) -> None:
    """Add the pages to an admin site, once. The default site has them unless ``JOBQUEUE["ADMIN"]`` is False."""
    if not site.is_registered(FailedJob):
        site.register(FailedJob, FailedJobAdmin)
    if not site.is_registered(Job):
        site.register(Job, JobAdmin)
    if not site.is_registered(Worker):
        site.register(Worker, WorkerAdmin)


def _wanted() -> bool:
    try:
        return get_settings().admin
    except ImproperlyConfigured:
        return True  # a system check says what is wrong with the setting, if the site comes that far


if _wanted():
    register()

__all__ = ["register"]
