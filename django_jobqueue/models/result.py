"""How jobs ended that keep their result, until it expires."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..conf import MAX_CONNECTION_NAME
from ..jobs.errors import MAX_MESSAGE
from ..jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from ..jobs.records import CANCELLED, PROCESSED
from .fields import ClockField, ExactCharField, JobIdField
from .job import MAX_WORKER


class Result(models.Model):
    """A job that succeeded, and ``worker``, who ran the attempt that did; or one that was cancelled.

    ``value`` is JSON text, empty where ``error`` says why it could not be kept.
    """

    job_id = JobIdField(_("job id"), primary_key=True, editable=False)
    connection = ExactCharField(_("connection"), max_length=MAX_CONNECTION_NAME)
    queue = ExactCharField(_("queue"), max_length=MAX_QUEUE_NAME)
    name = ExactCharField(_("job"), max_length=MAX_JOB_NAME)
    state = ExactCharField(
        _("state"), max_length=9, choices=[(PROCESSED, _("done")), (CANCELLED, _("cancelled"))], default=PROCESSED
    )
    payload = models.TextField(_("payload"))
    format = models.SmallIntegerField()
    rank = models.SmallIntegerField()
    masked = models.TextField(default="")
    value = models.TextField(_("value"))
    error = models.CharField(_("error"), max_length=MAX_MESSAGE, default="")
    attempts = models.IntegerField(_("attempts"))
    max_attempts = models.IntegerField(_("maximum attempts"), null=True)
    worker = ExactCharField(_("worker"), max_length=MAX_WORKER)
    created_at = ClockField(_("dispatched"))
    started_at = ClockField(_("started"), null=True)
    finished_at = ClockField(_("finished"))
    expires_at = ClockField(_("kept until"))
    errors = models.TextField(default="")
    metadata = models.TextField(_("metadata"), default="")

    class Meta:
        verbose_name = _("result")
        verbose_name_plural = _("results")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="jobqueue_result_expires")]

    def __str__(self) -> str:
        return f"{self.name} {str(self.job_id)[-8:]}"
