"""What is counted of runs: how many in a minute, what became of them, how long they waited and took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

MINUTE_SECONDS = 60
HOUR_SECONDS = 3600
MINUTE = MINUTE_SECONDS * 1_000_000  # in microseconds
HOUR = HOUR_SECONDS * 1_000_000
# After so many seconds the minutes of an hour become one; until then what was done is told to the minute.
ROLLED_UP_AFTER = 86_400


class CountKey(NamedTuple):
    """Which runs are counted together; ``minute`` is its beginning by the store's clock, in microseconds."""

    minute: int
    connection: str
    queue: str
    name: str
    seconds: int = MINUTE_SECONDS


@dataclass(slots=True)
class Count:
    """Runs by what became of the job, as in ``WorkerStats``; sums and maxima are seconds, of all of these runs."""

    processed: int = 0
    released: int = 0
    failed: int = 0
    lost: int = 0
    elapsed_sum: float = 0.0
    elapsed_max: float = 0.0
    waited_sum: float = 0.0
    waited_max: float = 0.0

    @property
    def runs(self) -> int:
        return self.processed + self.released + self.failed + self.lost

    @property
    def elapsed_mean(self) -> float:
        return self.elapsed_sum / self.runs if self.runs else 0.0

    @property
    def waited_mean(self) -> float:
        return self.waited_sum / self.runs if self.runs else 0.0

    def add(self, other: Count) -> None:
        self.processed += other.processed
        self.released += other.released
        self.failed += other.failed
        self.lost += other.lost
        self.elapsed_sum += other.elapsed_sum
        self.elapsed_max = max(self.elapsed_max, other.elapsed_max)
        self.waited_sum += other.waited_sum
        self.waited_max = max(self.waited_max, other.waited_max)


@dataclass(frozen=True, slots=True)
class Counted:
    """The count of one job of one queue from ``since`` on, a full minute or hour."""

    connection: str
    queue: str
    name: str
    since: datetime
    count: Count
