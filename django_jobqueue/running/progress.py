"""What handlers say of how far they are: in memory, until the keeper, or the end of the job, stores the last of it.

A report is a hint, and the end a fact: a store that fails here changes nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from threading import Lock

from ..drivers import connections
from ..jobs.records import Complete, Fail, Report, Reservation, Settlement

logger = logging.getLogger("django_jobqueue")

# Two writes of a loop are at least so far apart.
WRITE_SECONDS = 0.5


class Board:
    """The last reports of one loop's jobs; ``wake`` is called when there is news after a time without any."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._last: dict[Reservation, Report] = {}
        self._news: set[Reservation] = set()
        self._write_at = 0.0
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._last)

    def report(self, job: Reservation, percent: int | None, stage: str) -> None:
        with self._lock:
            is_first = not self._news
            self._last[job] = Report(job.id, job.token, percent, stage)
            self._news.add(job)
        if is_first:
            self.wake()

    def look(self) -> float | None:
        """Store what is due; return the seconds until more is, None when there is no news."""
        if not self._news:
            return None
        now = time.monotonic()
        if now >= self._write_at:
            self._write_at = now + WRITE_SECONDS
            with self._lock:
                news = {job: self._last[job] for job in self._news}
                self._news.clear()
            for alias in {job.connection for job in news}:
                _write(alias, [report for job, report in news.items() if job.connection == alias], None)
            return None
        return self._write_at - now

    def close(self, ended: list[tuple[Reservation, Settlement | None]], now: datetime | None) -> None:
        """Jobs of one connection have ended; None is the end of one whose reservation was lost."""
        reports = []
        for job, settlement in ended:
            with self._lock:
                last = self._last.pop(job, None)
                has_news = job in self._news
                self._news.discard(job)
            if last is None or settlement is None:
                continue
            if isinstance(settlement, Complete):
                reports.append(last._replace(token=None, percent=100))
            elif has_news or isinstance(settlement, Fail):
                reports.append(last._replace(token=None))
        if reports:
            _write(ended[0][0].connection, reports, now)


def _write(alias: str, reports: list[Report], now: datetime | None) -> None:
    try:
        connections[alias].write_progress(reports, now=now)
    except Exception:
        logger.warning("The progress of %s jobs on %r could not be stored.", len(reports), alias, exc_info=True)
