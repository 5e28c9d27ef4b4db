"""How much to reserve from a queue at once, and from where on.

A slice of work is 100 ms: long enough that two transactions per slice cost next to nothing, short enough that
a killed worker repeats little and a short job never waits long behind others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..drivers import Driver
from ..jobs.records import Position, Reserved, ReserveLimit

SLICE_SECONDS = 0.1
MOST_ROWS = 500
FORGET_SECONDS = 60.0
# How much of an average is the newest run: a queue that turns slow is noticed within a few jobs.
NEWEST_SHARE = 0.25
SHORTEST_RUN = SLICE_SECONDS / MOST_ROWS
MOST_NAMES = 10_000  # names are made by programs; a program that makes them without end must not fill memory


class Averages:
    """Moving averages of run times in seconds, by job name."""

    def __init__(self) -> None:
        self.by_name: dict[str, float] = {}

    def note(self, name: str, ran: float) -> None:
        known = self.by_name.get(name)
        if known is None and len(self.by_name) >= MOST_NAMES:
            self.by_name.clear()
        self.by_name[name] = ran if known is None else known + NEWEST_SHARE * (ran - known)


@dataclass(slots=True)
class Lane:
    """One queue of one connection, as one worker sees it."""

    driver: Driver
    queue: str
    average: float | None = None
    rows: int = 1
    mark: Position | None = None
    marked_until: float = 0.0
    seen: float = 0.0

    def limit(self, most: int, max_attempts: int, averages: Averages) -> ReserveLimit:
        """At most what fits a slice by the average run, at most twice as many as last time."""
        fitting = 1 if self.average is None else int(SLICE_SECONDS / max(self.average, SHORTEST_RUN))
        self.rows = max(1, min(fitting, self.rows * 2, MOST_ROWS))
        return ReserveLimit(
            rows=min(self.rows, most),
            max_attempts=max_attempts,
            seconds=SLICE_SECONDS,
            averages=averages.by_name,
        )

    def note_run(self, ran: float) -> None:
        self.average = ran if self.average is None else self.average + NEWEST_SHARE * (ran - self.average)

    def note_reserved(self, reserved: Reserved, now: float, interval: float) -> None:
        """Start the next reserve behind the last row taken, for one poll interval, while there is more behind it.

        Without it each reserve walks over all rows that were taken before and that a long reader keeps alive.
        """
        if not reserved.more or not reserved.jobs:
            self.mark = None
            return
        if self.mark is None:
            self.marked_until = now + interval
        self.mark = reserved.jobs[-1].position if now < self.marked_until else None


class Lanes:
    """The queues that a worker serves, in the order in which the next reserve looks at them."""

    def __init__(self, drivers: Sequence[Driver], queues: Sequence[str] | None) -> None:
        """``queues`` in strict order, or None for every queue, in turn."""
        self._drivers = drivers
        self._strict = queues
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._turn = 0
        for queue in queues or ():
            for driver in drivers:
                self._lanes[driver.alias, queue] = Lane(driver, queue)

    def discover(self, driver: Driver) -> None:
        """Under ``*``: serve the queues that a connection holds now, and for a while those that it held."""
        if self._strict is not None:
            return
        now = time.monotonic()
        for name in driver.queues():
            lane = self._lanes.setdefault((driver.alias, name), Lane(driver, name))
            lane.seen = now
        # A queue that empties fills again soon: what is told of it is heard without looking for its name first.
        self._lanes = {
            key: lane
            for key, lane in self._lanes.items()
            if lane.driver is not driver or now - lane.seen < FORGET_SECONDS
        }

    def of(self, driver: Driver) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.driver is driver]

    def in_turn(self) -> list[Lane]:
        """All lanes; under ``*`` each call begins one further on, so that no queue waits for another's end."""
        lanes = list(self._lanes.values())
        if self._strict is not None or not lanes:
            return lanes
        self._turn += 1
        first = self._turn % len(lanes)
        return lanes[first:] + lanes[:first]

    def drop_marks(self) -> None:
        for lane in self._lanes.values():
            lane.mark = None
