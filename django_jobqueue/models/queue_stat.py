"""What was done in each minute or hour, for people to look at. No job depends on it, and nothing refers to it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..conf import MAX_CONNECTION_NAME
from ..jobs.counts import MINUTE_SECONDS
from ..jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from .fields import ClockField, ExactCharField


class QueueStat(models.Model):
    """The runs of one job of one queue that ended in the ``seconds`` from ``minute`` on: 60, or 3600 once rolled up.

    A minute and its hour may both be there: what is stored late has not been added to the hour yet.
    ``processed``, ``released``, ``failed`` and ``lost`` are those of ``WorkerStats``; sums and maxima are microseconds.
    """

    minute = ClockField(_("minute"))
    connection = ExactCharField(_("connection"), max_length=MAX_CONNECTION_NAME)
    queue = ExactCharField(_("queue"), max_length=MAX_QUEUE_NAME)
    name = ExactCharField(_("job"), max_length=MAX_JOB_NAME)
    seconds = models.SmallIntegerField(_("seconds"), default=MINUTE_SECONDS)
    processed = models.BigIntegerField(_("processed"), default=0)
    released = models.BigIntegerField(_("released"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    lost = models.BigIntegerField(_("lost"), default=0)
    elapsed_sum = models.BigIntegerField(default=0)
    elapsed_max = models.BigIntegerField(default=0)
    waited_sum = models.BigIntegerField(default=0)
    waited_max = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = _("minute of a queue")
        verbose_name_plural = _("minutes of queues")
        default_permissions = ()
        constraints: ClassVar = [
            # By its first column old rows are found, too.
            models.UniqueConstraint(
                fields=["minute", "connection", "queue", "name", "seconds"], name="jobqueue_stat_minute"
            )
        ]
        # Old minutes are found behind however many hours.
        indexes: ClassVar = [models.Index(fields=["seconds", "minute"], name="jobqueue_stat_seconds")]

    def __str__(self) -> str:
        return f"{self.name} {self.minute}"
