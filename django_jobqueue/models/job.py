"""The hot table: only what is waiting or running. A job that succeeds leaves it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from ..jobs.records import BLOCKED, READY, RESERVED, SCHEDULED
from .fields import ClockField, ExactCharField, JobIdField
from .indexes import StateIndex

MAX_WORKER = 150


class Job(models.Model):
    """A waiting or running job.

    ``rank`` is minus the priority, so that ascending is the order of running on every database. ``ready_at``
    is when the job became runnable, by the store's clock; until then it repeats ``available_at``. ``alone``
    says that the reservation took this row only. ``errors``, ``metadata``, ``masked`` and ``flow``, what
    follows the job, are JSON text, which the database never parses.
    """

    id = JobIdField(primary_key=True, editable=False)
    queue = ExactCharField(_("queue"), max_length=MAX_QUEUE_NAME)
    name = ExactCharField(_("job"), max_length=MAX_JOB_NAME)
    payload = models.TextField(_("payload"))
    format = models.SmallIntegerField()
    rank = models.SmallIntegerField()
    state = ExactCharField(
        _("state"),
        max_length=9,
        choices=[(SCHEDULED, _("scheduled")), (READY, _("ready")), (RESERVED, _("reserved")), (BLOCKED, _("blocked"))],
    )
    ready_at = ClockField(_("ready since"))
    available_at = ClockField(_("available"))
    created_at = ClockField(_("dispatched"))
    attempts = models.IntegerField(_("attempts"), default=0)
    max_attempts = models.IntegerField(_("maximum attempts"), null=True)
    exceptions = models.IntegerField(default=0)
    crashes = models.IntegerField(_("crashes"), default=0)
    retries = models.IntegerField(_("retries"), default=0)
    retry_until = ClockField(_("retried until"), null=True)
    token = JobIdField(null=True)
    worker = ExactCharField(_("worker"), max_length=MAX_WORKER, default="")
    alone = models.BooleanField(default=False)
    reserved_at = ClockField(_("reserved"), null=True)
    reserved_until = ClockField(_("reserved until"), null=True)
    errors = models.TextField(default="")
    metadata = models.TextField(_("metadata"), default="")
    masked = models.TextField(default="")
    flow = models.TextField(null=True)  # noqa: DJ001 - so that the insert of a job without one leaves it out

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view", "delete")
        permissions: ClassVar = [
            ("view_payload_job", "Can view payload values and tracebacks of jobs and failed jobs"),
            ("cancel_job", "Can cancel job"),
            ("dispatch_job", "Can dispatch job"),
        ]
        indexes: ClassVar = [
            # Full, without a condition: Django drops conditions on MySQL and MariaDB, and with it the state.
            models.Index(fields=["queue", "state", "rank", "ready_at", "id"], name="jobqueue_job_reserve"),
            StateIndex(fields=["queue", "state", "available_at"], name="jobqueue_job_stage", state=SCHEDULED),
            StateIndex(fields=["state", "reserved_until"], name="jobqueue_job_rescue", state=RESERVED),
        ]

    def __str__(self) -> str:
        return f"{self.name} {str(self.id)[-8:]}"
