"""How far jobs are, for those that say so. Apart from the jobs, whose rows atomic jobs hold locked while they run."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..conf import MAX_CONNECTION_NAME
from ..jobs.context import MAX_STAGE
from .fields import ClockField, ExactCharField, JobIdField


class Progress(models.Model):
    """The last report of a job; ``percent`` is NULL when nobody knows.

    ``state`` is that in which a job ended that a person has removed, and otherwise empty.
    """

    job_id = JobIdField(_("job id"), primary_key=True, editable=False)
    connection = ExactCharField(_("connection"), max_length=MAX_CONNECTION_NAME)
    percent = models.SmallIntegerField(_("percent"), null=True)
    stage = models.CharField(_("stage"), max_length=MAX_STAGE, default="")
    state = ExactCharField(_("state"), max_length=10, default="")
    updated_at = ClockField(_("reported"))

    class Meta:
        verbose_name = _("progress")
        verbose_name_plural = _("progress")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["updated_at"], name="jobqueue_progress_updated")]

    def __str__(self) -> str:
        return f"{self.percent} % {self.stage}"
