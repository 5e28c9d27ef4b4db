"""Batches, and who is still a member of one.

Members are rows, never a counter: jobs that end at the same time would wait for each other at a row that counts them.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..conf import MAX_CONNECTION_NAME
from ..jobs.names import MAX_JOB_NAME
from .fields import ClockField, ExactCharField, JobIdField

PENDING, FAILED, CANCELLED = 0, 1, 2


class Batch(models.Model):
    """A batch. ``total`` counts those who ever became a member; ``callbacks`` is JSON text."""

    id = JobIdField(primary_key=True, editable=False)
    connection = ExactCharField(_("connection"), max_length=MAX_CONNECTION_NAME)
    name = ExactCharField(_("name"), max_length=MAX_JOB_NAME, default="")
    metadata = models.TextField(_("metadata"), default="")
    allow_failures = models.BooleanField(_("allows failures"), default=False)
    callbacks = models.TextField(default="")
    total = models.IntegerField(_("jobs"))
    created_at = ClockField(_("dispatched"))
    cancelled_at = ClockField(_("cancelled"), null=True)
    finished_at = ClockField(_("finished"), null=True)

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["finished_at"], name="jobqueue_batch_finished")]

    def __str__(self) -> str:
        return f"{self.name} {str(self.id)[-8:]}".strip()


class BatchMember(models.Model):
    """A job, or the step of a chain that has its turn, that has not succeeded. One that succeeds leaves the table."""

    job_id = JobIdField(_("job id"), primary_key=True, editable=False)
    batch_id = JobIdField(_("batch"))
    state = models.SmallIntegerField(
        _("state"), choices=[(PENDING, _("pending")), (FAILED, _("failed")), (CANCELLED, _("cancelled"))]
    )

    class Meta:
        verbose_name = _("member of a batch")
        verbose_name_plural = _("members of batches")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["batch_id", "state"], name="jobqueue_member_batch")]

    def __str__(self) -> str:
        return str(self.job_id)[-8:]
