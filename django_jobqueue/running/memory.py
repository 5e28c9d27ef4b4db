"""How much memory the process has, and when it has had enough."""

from __future__ import annotations

import os
import sys
import time

try:
    import resource

    _HAS_USAGE = True
except ImportError:  # Windows
    _HAS_USAGE = False

MEGABYTE = 1024 * 1024
LOOK_INTERVAL = 1.0


def resident_bytes() -> int | None:
    """The resident set of this process; the largest that it was, where that is all there is; else None."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    if not _HAS_USAGE:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


class MemoryLimit:
    """Once reached, it stays so: every loop of the process ends, each after its job."""

    def __init__(self, megabytes: int | None) -> None:
        self._limit = None if megabytes is None else megabytes * MEGABYTE
        self._look_at = 0.0
        self._is_reached = False

    @property
    def is_reached(self) -> bool:
        if self._limit is None or self._is_reached:
            return self._is_reached
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_INTERVAL
            self._is_reached = (resident_bytes() or 0) > self._limit
        return self._is_reached
