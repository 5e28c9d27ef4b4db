"""Progress in Redis: a hash of the last reports, and a sorted set of when they were made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

from ...jobs.records import ProgressRecord, Report
from ...jobs.times import microseconds
from ..progress import ProgressStore
from .form import Unreadable, progress_record, report_arguments, stamp
from .store import RedisStore


class RedisProgress(ProgressStore):
    """The reports of one connection."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def write(self, reports: Sequence[Report], *, now: datetime | None = None) -> None:
        arguments = [argument for report in reports for argument in report_arguments(report)]
        if arguments:
            self._store.run("progress", [], [stamp(now), *arguments])

    def get_many(self, job_ids: Sequence[UUID]) -> dict[UUID, ProgressRecord]:
        names = [job_id.hex for job_id in job_ids]
        texts = cast("list[bytes | None]", self._store.client.hmget(self._store.keys.progress, names)) if names else []
        found = {}
        for job_id, text in zip(job_ids, texts, strict=True):
            try:
                if text is not None:
                    found[job_id] = progress_record(text)
            except Unreadable:
                continue
        return found

    def prune(self, *, older_than: float, limit: int, now: datetime | None = None) -> int:
        return int(self._store.run("prune", [], [stamp(now), microseconds(older_than), limit, "progress"]))
