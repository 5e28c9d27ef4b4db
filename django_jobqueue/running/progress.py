"""What handlers say of how far they are: in memory, until the keeper, or the end of the job, stores the last of it.

A report is a hint, and the end a fact: a store that fails here changes nothing else. One that may hang while the
queue's own store does not, such as a cache, is written by a thread for which nobody waits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Condition, Lock, Thread

from django.core.cache import close_caches

from ..drivers import connections
from ..jobs.records import Complete, Fail, Report, Reservation, Settlement
from ..operations.reports import write_reports
from .surroundings import close_connections, refresh_connections

logger = logging.getLogger("django_jobqueue")

# Two writes of a loop are at least so far apart.
WRITE_SECONDS = 0.5
# The same of the thread aside; with the pause above less than a second.
ASIDE_SECONDS = 0.25
# At the end the thread aside has so long to store the last reports.
END_SECONDS = 1.0
# After such a time a store is said to hang.
HANGS_SECONDS = 10.0
# While a store hangs, no more reports than these wait for it: the last ones.
MOST_WAITING = 10_000


class Board:
    """The last reports of one loop's jobs; ``wake`` is called when there is news after a time without any."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        #: Where there may be threads, what writes to a store that may hang.
        self.aside: Aside | None = None
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
                self._write(alias, [report for job, report in news.items() if job.connection == alias], None)
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
            self._write(ended[0][0].connection, reports, now)

    def _write(self, alias: str, reports: list[Report], now: datetime | None) -> None:
        driver = connections[alias]
        if self.aside is not None and driver.progress.is_apart:
            self.aside.put(alias, reports)
        else:
            write_reports(driver, reports, now=now)


class Aside:
    """A thread, begun with the first report, that writes to stores which may hang."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Report]] = deque(maxlen=MOST_WAITING)
        self._changed = Condition()
        self._thread: Thread | None = None
        self._writing_since: float | None = None
        self._is_ended = False

    def put(self, alias: str, reports: Sequence[Report]) -> None:
        """Have reports stored soon. In the order in which they were put, so that an end stays the last word."""
        with self._changed:
            self._waiting.extend((alias, report) for report in reports)
            self._complain_of_hanging()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="jobqueue-progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def end(self) -> None:
        """Let the thread store what waits, and end; one that hangs is left behind."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def _complain_of_hanging(self) -> None:
        if self._writing_since is not None and time.monotonic() - self._writing_since > HANGS_SECONDS:
            self._writing_since = None  # said once
            logger.warning(
                "The cache for the progress of jobs has not answered for %g s; give it a timeout.", HANGS_SECONDS
            )

    def _run(self) -> None:
        try:
            while found := self._take():
                self._write(found)
        finally:
            close_connections()
            close_caches()

    def _take(self) -> list[tuple[str, Report]]:
        """What waits, as soon as there is something; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            found = list(self._waiting)
            self._waiting.clear()
            self._writing_since = time.monotonic()
        return found

    def _write(self, found: list[tuple[str, Report]]) -> None:
        refresh_connections()
        for alias in {alias for alias, _report in found}:
            reports = [report for of, report in found if of == alias]
            if not write_reports(connections[alias], reports):
                close_connections()
        with self._changed:
            self._writing_since = None
            self._changed.wait_for(lambda: self._is_ended, ASIDE_SECONDS)
