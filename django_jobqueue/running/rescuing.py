"""Rescue, by every worker, for every queue, whoever reserved: nobody has to be alive in particular."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime

from ..dispatching.batches import announce_closed, close
from ..dispatching.dispatch import announce as announce_stored
from ..drivers import Driver
from ..drivers.base import RESCUE_LIMIT
from ..jobs.records import Rescued
from ..operations.keeping import keep_for
from ..signals import job_failed

logger = logging.getLogger("django_jobqueue")


def rescue(driver: Driver, max_attempts: int, now: datetime | None) -> None:
    """Deal with all reservations that have expired; healthy long jobs, being renewed, never stand in the way."""
    while True:
        rescued = driver.rescue(max_attempts=max_attempts, now=now)
        for job in rescued:
            announce(driver, job, "the reservation of worker %s expired")
        if len(rescued) < RESCUE_LIMIT:
            return


def announce(driver: Driver, job: Rescued, why: str) -> None:
    """Say that a job was rescued; ``why`` has a place for the worker."""
    logger.warning(
        f"job %s %s was rescued: {why}",
        job.name,
        job.id,
        job.worker,
        extra={"event": "job_rescued", "job": job.name, "id": str(job.id), "queue": job.queue},
    )
    if job.record is not None:
        driver.send(
            job_failed,
            id=job.id,
            name=job.name,
            queue=job.queue,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            waited=job.record.waited,
            elapsed=job.record.ran,
            exception_class=job.record.exception_class,
            exception_message=job.record.message,
            traceback=job.record.traceback,
            dead_lettered=job.dead_lettered,
            delay=None if job.dead_lettered else 0.0,
        )
    announce_stored(driver, job.then)
    if job.batch is not None:
        # What an outage leaves open a sweep ends.
        with suppress(*driver.outages):
            close(driver, job.batch)


def sweep(driver: Driver) -> None:
    """End the batches that nobody has ended, since whoever ended their last member crashed."""
    for closed in driver.sweep_batches(keep_for=keep_for()):
        announce_closed(driver, closed)
