"""One run of `bench` on one connection: it fills the store, drains it with workers, and counts every run.

What is wrong is collected, so that one bad measurement does not hide the others; the command fails at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from django_jobqueue import dispatch_many
from django_jobqueue.drivers import connections

from .stores import store_of
from .tally import Tally
from .workers import Report, Workers

BENCH_LANE = 0  # the lanes of workers begin behind it
LEAST_SECONDS = 120.0
SLOWEST_RATE = 100.0  # jobs a second: what is slower is taken for stuck
NEWS_SECONDS = 5.0

Tick = Callable[[Workers], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """``rate`` is of starts, from the first to the last; ``rate_to_end`` counts the last settling too."""

    jobs: int
    rate: float
    rate_to_end: float
    microseconds: float
    reports: list[Report]


class Session:
    """``say`` takes a line of progress."""

    def __init__(self, alias: str, jobs: int, folder: Path, say: Callable[[str], None]) -> None:
        self.alias, self.jobs, self.folder, self.say = alias, jobs, folder, say
        self.driver = connections[alias]
        self.store = store_of(self.driver)
        self.server = self.store.server()
        self.problems: list[str] = []
        self.doing = ""
        self._numbers = count(1)

    def begin(self, doing: str) -> None:
        """Say what is measured next."""
        self.doing = doing
        self.say(doing)

    @contextmanager
    def tally(self, size: int) -> Iterator[Tally]:
        """A new tally; the store is cleaned when its jobs are over."""
        tally = Tally.create(self.folder / f"tally-{next(self._numbers)}", size)
        try:
            yield tally
        finally:
            tally.close()
            tally.path.unlink()
            self.store.clean()

    def bound(self, handler: Any) -> Any:
        """A job that goes to the connection that is measured, wherever its queue would go."""
        return handler.using(connection=self.alias)

    def fill(self, handler: Any, jobs: int) -> None:
        target = self.bound(handler)
        dispatch_many(target.s(index) for index in range(jobs))

    def workers(
        self,
        count: int,
        tally: Tally,
        options: Callable[[int], Sequence[str]],
        environment: Mapping[str, str] | None = None,
    ) -> Workers:
        """Processes that hit the tally, each in a lane of its own; ``options`` are those of a process by its number."""
        own = ("--store", self.alias, "--tally", str(tally.path), "--size", str(tally.size))

        def arguments(number: int) -> list[str]:
            return [*own, "--lane", str(BENCH_LANE + 1 + number), *options(number)]

        return Workers(count, arguments, environment or {})

    def drain(
        self,
        queue: str,
        tally: Tally,
        *,
        processes: int = 1,
        environment: Mapping[str, str] | None = None,
        tick: Tick | None = None,
    ) -> Drained:
        """Let workers run everything that the queue holds, and check that each job ran once."""
        with self.workers(processes, tally, lambda number: ["--queue", queue], environment) as workers:
            workers.open_gate()
            news = _News(self.say, tally)
            seconds = LEAST_SECONDS + tally.size / SLOWEST_RATE
            reports = workers.wait(seconds, partial(_tick, news, tick, workers))
        self.check(tally)
        return drained(tally, reports)

    def measured_drain(self, handler: Any, jobs: int, **options: Any) -> Drained:
        """Fill and drain one queue."""
        with self.tally(jobs) as tally:
            self.fill(handler, jobs)
            return self.drain(handler.definition.queue, tally, **options)

    def check(self, tally: Tally) -> None:
        """Every job of the tally ran once, and none is left in the store."""
        wrong = tally.wrong()
        if wrong:
            self.problems.append(f"{self.doing}: {wrong}.")
        left = self.store.left()
        if left:
            self.problems.append(f"{self.doing}: {left:,} jobs have not left the store.")


def drained(tally: Tally, reports: list[Report]) -> Drained:
    stamps = [stamp for stamp in tally.starts() if stamp]
    seconds = (max(report.ended for report in reports) - min(stamps)) / 1e9 if stamps else 0.0
    return Drained(
        jobs=tally.size,
        rate=tally.rate(),
        rate_to_end=len(stamps) / seconds if seconds else 0.0,
        microseconds=1e6 * sum(report.processor_seconds for report in reports) / tally.size,
        reports=reports,
    )


class _News:
    """A line of progress every few seconds."""

    def __init__(self, say: Callable[[str], None], tally: Tally) -> None:
        self._say, self._tally = say, tally
        self._next = time.monotonic() + NEWS_SECONDS

    def tell(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + NEWS_SECONDS
        self._say(f"    {self._tally.started():,} of {self._tally.size:,} jobs")


def _tick(news: _News, tick: Tick | None, workers: Workers) -> None:
    news.tell()
    if tick is not None:
        tick(workers)
