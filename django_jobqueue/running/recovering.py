"""Giving back what a dead process held, in a thread of its own, for as long as it takes to reach the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock, Thread
from uuid import UUID

from ..drivers import Driver
from ..jobs.records import Cause
from .notes import Noted
from .options import WorkerOptions
from .outages import StoreHealth
from .rescuing import announce
from .stopping import Stopping
from .surroundings import close_connections

logger = logging.getLogger("django_jobqueue")

# A reserve that was under way when its process died may be committed only now.
LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class InHand:
    """A job that a dead process had started. ``spends``: it is not one that others took down with them."""

    noted: Noted
    spends: bool = True
    cause: Cause | None = None


@dataclass(slots=True)
class _Task:
    """What is to be done at one store after one death."""

    driver: Driver
    workers: Sequence[str]
    started: Sequence[InHand]
    ids: frozenset[UUID]
    due: float = 0.0
    looks: int = 0
    done: set[UUID] = field(default_factory=set)


class Recovery:
    """``recover`` takes note of a death and returns at once."""

    def __init__(self, options: WorkerOptions, drivers: Sequence[Driver]) -> None:
        self._options = options
        self._drivers = drivers
        self._health = {
            driver.alias: StoreHealth(driver, options.sleep, options.error_backoff_cap) for driver in drivers
        }
        self._ends = Stopping()
        self._waiter = self._ends.waiter()
        self._tasks: list[_Task] = []
        self._lock = Lock()
        self._thread: Thread | None = None

    def recover(self, workers: Sequence[str], started: Sequence[InHand]) -> None:
        if not workers:
            return
        with self._lock:
            for driver in self._drivers:
                own = [one for one in started if one.noted.connection == driver.alias]
                self._tasks.append(_Task(driver, workers, own, frozenset(one.noted.id for one in own)))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="jobqueue-recovery", daemon=True)
            self._thread.start()
        self._waiter.wake()

    def end(self, seconds: float) -> bool:
        """Finish what is to be done; return whether that was possible in so many seconds."""
        self._ends.ask("end")
        if self._thread is not None:
            self._thread.join(seconds)
        return not any(task.looks == 0 for task in self._tasks)

    def _run(self) -> None:
        try:
            while True:
                pause = self._look()
                if self._ends.requested and all(task.looks for task in self._tasks):
                    return
                self._waiter.pause(pause)
        finally:
            close_connections()

    def _look(self) -> float | None:
        """Do what is due; return the seconds until more is, None when there is nothing."""
        with self._lock:
            tasks = list(self._tasks)
        now = time.monotonic()
        for task in tasks:
            health = self._health[task.driver.alias]
            if task.due > now or not health.may_try:
                continue
            try:
                with health.reaching():
                    _give_back(task, self._options.max_attempts)
                    task.looks += 1
                    task.due = now + LOOK_AGAIN_SECONDS
            except Exception:
                logger.exception("What a dead worker process held could not be given back; it is rescued in time.")
                task.looks += 2
            health.end_turn()
        with self._lock:
            self._tasks = [task for task in self._tasks if task.looks < 2]
            if not self._tasks:
                return None
            down = [self._health[task.driver.alias].seconds_to_next_try() for task in self._tasks]
            dues = [task.due - now for task in self._tasks]
        return max(0.05, min(max(pair) for pair in zip(down, dues, strict=True)))


def _give_back(task: _Task, max_attempts: int) -> None:
    """First what nobody has started, so that it does not wait for the lock of an atomic job's row."""
    for worker in task.workers:
        task.driver.release_worker(worker, but=task.ids)
    for one in task.started:
        if one.noted.id in task.done:
            continue
        rescued = task.driver.rescue_in_hand(
            one.noted.id, one.noted.token, max_attempts=max_attempts, spends=one.spends, cause=one.cause
        )
        task.done.add(one.noted.id)
        if rescued is not None:
            announce(task.driver, rescued, "its worker %s ended while it ran")
