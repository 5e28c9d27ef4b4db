"""Who works, and what was asked of all who do. No job depends on these rows."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..jobs.workers import MAX_WORKER_NAME
from .fields import ClockField, ExactCharField, JobIdField


class Worker(models.Model):
    """A worker process, from its start to its clean stop; one that was killed stays until its row is pruned.

    ``queues`` are names separated by commas, or ``*``. ``memory`` is in bytes.
    """

    id = JobIdField(primary_key=True, editable=False)
    name = ExactCharField(_("name"), max_length=MAX_WORKER_NAME)
    host = ExactCharField(_("host"), max_length=MAX_WORKER_NAME)
    pid = models.BigIntegerField(_("process"))
    queues = models.TextField(_("queues"))
    workers = models.IntegerField(_("threads"))
    version = ExactCharField(_("version"), max_length=50)
    is_embedded = models.BooleanField(_("embedded"), default=False)
    processed = models.BigIntegerField(_("processed"), default=0)
    released = models.BigIntegerField(_("released"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    lost = models.BigIntegerField(_("lost"), default=0)
    memory = models.BigIntegerField(_("memory"), null=True)
    started_at = ClockField(_("started"))
    heartbeat_at = ClockField(_("last heartbeat"))

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)
        indexes: ClassVar = [models.Index(fields=["heartbeat_at", "id"], name="jobqueue_worker_heartbeat")]

    def __str__(self) -> str:
        return f"{self.name}:{self.pid}"


class WorkerRequest(models.Model):
    """When something was last asked of all worker processes, by its name: ``restart``."""

    name = ExactCharField(max_length=20, primary_key=True)
    asked_at = ClockField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
