"""What one loop holds: the reserved jobs that have not started, and the one in hand.

The loop takes from the left and its keeper takes the rest from the right; ``deque`` makes each of these one step,
so that every job is taken by exactly one of them, without a lock for every job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import NamedTuple

from ..jobs.records import Reservation


class InHand(NamedTuple):
    """The job that is running, and the moment of ``time.monotonic()`` at which it started."""

    job: Reservation
    since: float


class Hand:
    """``began`` is the moment at which the slice began; ``session`` is the loop's own session with the store."""

    def __init__(self) -> None:
        self._unstarted: deque[Reservation] = deque()
        self._stranded: list[Reservation] = []
        self.running: InHand | None = None
        self.began = 0.0
        self.session: int | None = None
        self.giving_back = Lock()

    def fill(self, jobs: Iterable[Reservation], session: int | None = None) -> None:
        self.began, self.session = time.monotonic(), session
        self._unstarted.extend(jobs)

    @property
    def has_unstarted(self) -> bool:
        return bool(self._unstarted)

    def begin_next(self) -> Reservation | None:
        """Take the next job in hand; None when none is left."""
        try:
            job = self._unstarted.popleft()
        except IndexError:
            return None
        self.running = InHand(job, time.monotonic())
        return job

    def end(self) -> None:
        """The job in hand has ended."""
        self.running = None

    def take_unstarted(self) -> list[Reservation]:
        """Take all jobs that have not started, to hand them back."""
        taken = []
        while True:
            try:
                taken.append(self._unstarted.pop())
            except IndexError:
                return taken

    def put_back(self, jobs: Iterable[Reservation]) -> None:
        """Return what ``take_unstarted`` gave and could not be handed back."""
        self._unstarted.extendleft(jobs)

    def strand(self, jobs: Iterable[Reservation]) -> None:
        """Keep, apart from the next slice, what a store that is out of reach does not take back."""
        self._stranded = [*self._stranded, *jobs]

    def take_stranded(self) -> list[Reservation]:
        """Take what was stranded, for another try."""
        taken, self._stranded = self._stranded, []
        return taken

    def held(self) -> list[Reservation]:
        """Every reserved job that has not ended."""
        running = self.running
        return [*self._unstarted, *self._stranded, *([running.job] if running else [])]
