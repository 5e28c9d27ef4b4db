"""Storing and reading what jobs said of how far they are: hints, so that a store of them that fails changes nothing.

It is said once that a store fails, and once that it works again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from uuid import UUID
from weakref import WeakSet

from django.db import transaction

from ..drivers import Driver
from ..drivers.progress import ProgressStore
from ..jobs.records import ProgressRecord, Report
from ..jobs.times import EPOCH_UTC

logger = logging.getLogger("django_jobqueue")

_failing: dict[str, WeakSet[ProgressStore]] = {"stored": WeakSet(), "read": WeakSet()}


def write_reports(driver: Driver, reports: Sequence[Report], *, now: datetime | None = None) -> bool:
    """Store reports of one connection; return whether they could be."""
    try:
        driver.progress.write(reports, now=now)
    except Exception:
        _note_failure(driver, "stored")
        return False
    _note_success(driver, "stored")
    return True


def last_reports(driver: Driver, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
    """The last report of each job that has one; none of a cache that fails. Raises the outages of the queue's store."""
    try:
        found = driver.progress.get_many(job_ids)
    except Exception:
        if not driver.progress.is_apart:
            raise
        _note_failure(driver, "read")
        return {}
    _note_success(driver, "read")
    return found


def note_removed(driver: Driver, job_ids: Sequence[UUID], state: str, *, spoke: bool = False) -> None:
    """Keep how jobs ended that a person has removed, once that is committed: nothing else is left that could tell.

    A crash in between costs a page the truth: it says of the job, which is gone, that it is done.
    With ``spoke`` only of those that have said how far they were, so that the others cost nothing.
    """
    store = partial(_store_state, driver, job_ids, state, spoke)
    if driver.in_transaction():
        transaction.on_commit(store, using=driver.database, robust=True)
    else:
        store()


def _store_state(driver: Driver, job_ids: Sequence[UUID], state: str, spoke: bool) -> None:
    try:
        found = driver.progress.get_many(job_ids)
    except Exception:
        _note_failure(driver, "read")
        return
    nothing = ProgressRecord(None, "", EPOCH_UTC)
    last = {job_id: found.get(job_id, nothing) for job_id in (found if spoke else job_ids)}
    if last:
        write_reports(driver, [Report(one, None, said.percent, said.stage, state) for one, said in last.items()])


def _note_failure(driver: Driver, what: str) -> None:
    if driver.progress not in _failing[what]:
        _failing[what].add(driver.progress)
        logger.warning("The progress of jobs on %r could not be %s.", driver.alias, what, exc_info=True)


def _note_success(driver: Driver, what: str) -> None:
    if driver.progress in _failing[what]:
        _failing[what].discard(driver.progress)
        logger.warning("The progress of jobs on %r can be %s again.", driver.alias, what)
