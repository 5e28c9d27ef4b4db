"""Dead letters: jobs that ended without success, and everything needed to run them again."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..conf import MAX_CONNECTION_NAME
from ..jobs.errors import MAX_CLASS, MAX_MESSAGE
from ..jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from .fields import ClockField, ExactCharField, JobIdField


class FailedJob(models.Model):
    """A dead letter. People name it by ``id``, its number; ``job_id`` is the UUID that the job always had."""

    id = models.BigAutoField(_("number"), primary_key=True)
    job_id = JobIdField(_("job id"))
    connection = ExactCharField(_("connection"), max_length=MAX_CONNECTION_NAME)
    queue = ExactCharField(_("queue"), max_length=MAX_QUEUE_NAME)
    name = ExactCharField(_("job"), max_length=MAX_JOB_NAME)
    payload = models.TextField(_("payload"))
    format = models.SmallIntegerField()
    rank = models.SmallIntegerField()
    max_attempts = models.IntegerField(_("maximum attempts"), null=True)
    metadata = models.TextField(_("metadata"), default="")
    masked = models.TextField(default="")
    flow = models.TextField(null=True)  # noqa: DJ001 - as in Job
    created_at = ClockField(_("dispatched"))
    exception_class = ExactCharField(_("error"), max_length=MAX_CLASS)
    exception_message = models.CharField(_("message"), max_length=MAX_MESSAGE)
    fingerprint = ExactCharField(max_length=64)
    fingerprint_version = models.SmallIntegerField()
    errors = models.TextField(default="")
    attempts = models.IntegerField(_("attempts"))
    retries = models.IntegerField(_("retries"), default=0)
    failed_at = ClockField(_("failed"))

    class Meta:
        verbose_name = _("failed job")
        verbose_name_plural = _("failed jobs")
        default_permissions = ("view", "delete")
        permissions: ClassVar = [
            ("retry_failedjob", "Can retry failed job"),
            ("retry_edited_failedjob", "Can retry failed job with changes"),
        ]
        constraints: ClassVar = [models.UniqueConstraint(fields=["job_id"], name="jobqueue_failed_job_id")]
        indexes: ClassVar = [
            models.Index(fields=["failed_at", "id"], name="jobqueue_failed_at"),
            models.Index(fields=["fingerprint", "failed_at"], name="jobqueue_failed_fingerprint"),
            models.Index(fields=["queue", "id"], name="jobqueue_failed_queue"),
            models.Index(fields=["name", "id"], name="jobqueue_failed_name"),
            models.Index(fields=["exception_class", "id"], name="jobqueue_failed_class"),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"
