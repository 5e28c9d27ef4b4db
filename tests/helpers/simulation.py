"""A loop whose waits take no time: they move its clock on, and a test hears of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobqueue.drivers.base import Ear
from django_jobqueue.running import attempt, execution, hand, keeper, lanes, outages, stopping, worker
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.worker import Worker

MOST_WAITS = 1000  # a test that waits more often waits for something that does not happen


class Simulation:
    """The monotonic clock of the running modules: the real one, plus what has been waited and advanced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        self.pauses: list[float | None] = []
        self._monkeypatch = monkeypatch
        clock = SimpleNamespace(monotonic=self.monotonic)
        for module in (attempt, hand, keeper, lanes, outages, stopping, worker):
            monkeypatch.setattr(module, "time", clock)
        real = execution.Attempt
        monkeypatch.setattr(execution, "Attempt", lambda *given: real(*given, started=self.monotonic()))

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def advance(self, seconds: float) -> None:
        self.passed += seconds

    def run(
        self, loop: Worker, *, waits: int | None = None, on_wait: Callable[[int], None] | None = None
    ) -> WorkerStats:
        """Run a loop; ask it to stop at its wait number ``waits``. ``on_wait`` is called with each number first."""

        def wait(seconds: float | None) -> bool:
            self.pauses.append(seconds)
            number = len(self.pauses)
            assert number <= MOST_WAITS, "the loop waits for something that does not happen"
            self.advance(seconds or 0.0)
            if on_wait is not None:
                on_wait(number)
            if waits is not None and number >= waits:
                loop.stopping.ask("the test has seen enough")
            return loop.stopping.requested

        def pause(seconds: float | None, ears: Sequence[Ear] = ()) -> bool:
            wait(seconds)
            return False

        waiter: Any = loop._waiter
        self._monkeypatch.setattr(waiter, "wait", wait)
        self._monkeypatch.setattr(waiter, "pause", pause)
        self.pauses.clear()
        return loop.run()


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    return Simulation(monkeypatch)
