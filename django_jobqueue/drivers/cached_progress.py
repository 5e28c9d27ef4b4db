"""Progress in a cache of Django's, for all connections: no write to the queue's store, and gone by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

from django.core.cache import caches

from ..exceptions import JobQueueError
from ..jobs.records import ProgressRecord, Report
from ..jobs.times import from_microseconds, to_microseconds
from .base import Driver
from .progress import ProgressStore, said_by_holders

# With the id it has no more than 51 characters, and none that memcached refuses; version and prefix are the cache's.
KEY = "jobqueue:progress:"


class CachedProgress(ProgressStore):
    """The reports of one connection in the cache ``alias``, each kept for ``lifetime`` seconds, None for ever.

    Whether a reservation is still held the queue's store is asked; there is no other who knows.
    """

    is_apart: ClassVar[bool] = True

    def __init__(self, alias: str, driver: Driver, lifetime: float | None) -> None:
        self._alias = alias
        self._driver = driver
        # What its store kept before a cache was named grows old there.
        self._before = driver.progress
        self._lifetime = None if lifetime is None else math.ceil(lifetime)

    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        valid = said_by_holders(reports, self._driver.still_held)
        moment = to_microseconds(now or datetime.now(UTC))
        values = {_key(one.id): [one.percent, one.stage, moment, one.state] for one in valid}
        refused = caches[self._alias].set_many(values, timeout=self._lifetime) if values else None
        if refused:
            raise JobQueueError(f"The cache {self._alias!r} did not take {len(refused)} of {len(values)} values.")

    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        found = caches[self._alias].get_many([_key(job_id) for job_id in job_ids])
        records = {job_id: _record(found.get(_key(job_id))) for job_id in job_ids}
        return {job_id: record for job_id, record in records.items() if record is not None}

    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        return self._before.prune(older_than=older_than, limit=limit, now=now)


def _key(job_id: UUID) -> str:
    return KEY + job_id.hex


def _record(value: Any) -> ProgressRecord | None:
    """None for what is no report, since anybody may write to a cache."""
    try:
        percent, stage, moment, state = value
        number = None if percent is None else int(percent)
        return ProgressRecord(number, str(stage), from_microseconds(int(moment)), str(state))
    except (TypeError, ValueError, OverflowError):
        return None
