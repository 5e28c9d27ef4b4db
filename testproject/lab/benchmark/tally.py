"""The tally: a file that all processes map, with the first start and the number of runs of every job.

Each process counts in a lane of its own, since adding one in shared memory is no single step: two workers that run
the same job at the same moment are both seen. Starts are nanoseconds of CLOCK_MONOTONIC, which all processes of a
machine share.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns

LANES = 8
STAMP_BYTES = 8
# Lanes are added up as one large number: eight times this fits a byte, so that no sum spills into its neighbour.
MOST_COUNTED = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """How many jobs did not run exactly once."""

    missing: int
    repeated: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.repeated)

    def __str__(self) -> str:
        return f"{self.missing:,} jobs did not run, and {self.repeated:,} ran more than once"


class Tally:
    """``size`` jobs, named by their index; ``lane`` is this process' own."""

    def __init__(self, path: Path, size: int, lane: int = 0) -> None:
        if not 0 <= lane < LANES:
            raise ValueError(f"A tally has the lanes 0 to {LANES - 1}; {lane} is none of them.")
        self.path, self.size = path, size
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _bytes(size))
        whole = memoryview(self._map)
        self._starts = whole[: size * STAMP_BYTES].cast("q")
        counts = whole[size * STAMP_BYTES :]
        self._lanes = [counts[number * size : (number + 1) * size] for number in range(LANES)]
        self._own = self._lanes[lane]
        self._views = [whole, counts]

    @classmethod
    def create(cls, path: Path, size: int) -> Tally:
        """A new, empty one."""
        with path.open("wb") as file:
            file.truncate(_bytes(size))
        return cls(path, size)

    def hit(self, index: int) -> None:
        """A job starts here and now."""
        moment = monotonic_ns()
        if not self._starts[index]:
            self._starts[index] = moment
        count = self._own[index]
        if count < MOST_COUNTED:
            self._own[index] = count + 1

    def runs(self) -> bytes:
        """How often each job ran, a byte each."""
        return sum(int.from_bytes(lane, "little") for lane in self._lanes).to_bytes(self.size, "little")

    def started(self) -> int:
        """How many jobs have run at least once."""
        return self.size - self.runs().count(0)

    def wrong(self) -> Wrong:
        runs = self.runs()
        missing = runs.count(0)
        return Wrong(missing=missing, repeated=self.size - missing - runs.count(1))

    def starts(self) -> list[int]:
        """The first start of each job by its index; 0 where there was none."""
        return self._starts.tolist()

    def rate(self) -> float:
        """Starts a second, from the first start to the last."""
        stamps = [stamp for stamp in self.starts() if stamp]
        if len(stamps) < 2 or max(stamps) == min(stamps):
            return 0.0
        return (len(stamps) - 1) * 1e9 / (max(stamps) - min(stamps))

    def close(self) -> None:
        for view in (self._starts, *self._lanes, *self._views):
            view.release()
        self._map.close()


_open: Tally | None = None


def hit(index: int) -> None:
    """What a bench job does first."""
    if _open is not None:
        _open.hit(index)


@contextmanager
def hitting(tally: Tally) -> Iterator[None]:
    """Let the bench jobs of this process hit ``tally``."""
    global _open
    _open = tally
    try:
        yield
    finally:
        _open = None


def _bytes(size: int) -> int:
    return size * (STAMP_BYTES + LANES)
