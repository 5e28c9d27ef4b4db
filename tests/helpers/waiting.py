"""Waiting for what another thread, process or server does: always for a condition, always with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

# Far more than anything here takes: reached only when what is waited for does not happen.
DEADLINE = 60.0
BETWEEN_LOOKS = 0.02


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    *,
    seconds: float = DEADLINE,
    between: float = BETWEEN_LOOKS,
) -> T:
    """Return the first true value of ``condition``; at the deadline fail, and say ``what`` was waited for."""
    ends = time.monotonic() + seconds
    pause = Event()
    while True:
        if value := condition():
            return value
        if time.monotonic() >= ends:
            raise AssertionError(f"After {seconds:g} s still not: {what if isinstance(what, str) else what()}")
        pause.wait(between)
