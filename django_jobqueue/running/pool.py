"""One process: as many loops as were asked for, one shutdown, merged counts.

With one loop it runs in the calling thread. A loop that ends by itself is logged and replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock, Thread

from ..drivers import Driver
from .budget import Budget
from .housekeeping import Housekeeper
from .memory import MemoryLimit
from .notes import Notes, Page
from .options import WorkerOptions, WorkerStats
from .restarting import Restart
from .stopping import HEARING_SECONDS, Stopping
from .surroundings import close_connections
from .worker import Worker, drivers_of

logger = logging.getLogger("django_jobqueue")

# A loop that ends at once, again and again, must not fill the log.
REPLACE_PAUSE = 1.0


class Pool:
    """``abandon`` is called with an exit code when only handlers run that were given up: nobody waits for them.

    ``on_well`` is called every ten seconds while every loop does its work and every store answers.
    """

    def __init__(
        self,
        options: WorkerOptions,
        *,
        drivers: list[Driver] | None = None,
        stopping: Stopping | None = None,
        abandon: Callable[[int], None] = lambda code: None,
        notes: Notes | None = None,
        restart: Restart | None = None,
        on_well: Callable[[], None] = lambda: None,
        is_embedded: bool = False,
    ) -> None:
        self.options = options
        self._drivers = drivers_of(options) if drivers is None else drivers
        self.stopping = stopping or Stopping()
        self._abandon = abandon
        self._notes = notes
        self._budget = Budget(options.max_jobs)
        self._memory = MemoryLimit(options.memory)
        self._restart = restart or Restart()
        self.reasons: set[str] = set()
        self._lock = RLock()
        self._running: set[Worker] = set()
        self._abandoned: set[Worker] = set()
        self._stats = WorkerStats()
        self._threads: list[Thread] = []
        self._housekeeper = Housekeeper(
            options,
            self._drivers,
            lambda: self.stats,
            is_well=lambda: self.is_well,
            on_well=on_well,
            look=self._restart.look,
            is_embedded=is_embedded,
        )

    @property
    def stats(self) -> WorkerStats:
        """The merged counts, of loops that still run too."""
        with self._lock:
            return sum((worker.stats for worker in self._running), self._stats)

    @property
    def is_well(self) -> bool:
        """Whether every loop turns, or is at a job whose time is not over."""
        with self._lock:
            return all(worker.is_well for worker in self._running)

    def run(self) -> WorkerStats:
        """Work until told to stop; return the merged counts."""
        if self.options.workers > 1:
            self.start()
            self.join()
            return self.stats
        self._housekeeper.start()
        try:
            self._keep_running()
        finally:
            self._housekeeper.end()
        return self.stats

    def start(self) -> None:
        """Run every loop in a thread of its own, and return."""
        self._housekeeper.start()
        for number in range(self.options.workers):
            thread = Thread(target=self._run_thread, name=f"jobqueue-worker-{number + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads, each at most ``timeout`` seconds."""
        for thread in self._threads:
            if timeout is not None:
                thread.join(timeout)
            while timeout is None and thread.is_alive():
                thread.join(HEARING_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            self._housekeeper.end()

    def _run_thread(self) -> None:
        try:
            self._keep_running()
        finally:
            close_connections()

    def _keep_running(self) -> None:
        waiter = self.stopping.waiter()
        while not self._run_one() and not waiter.wait(REPLACE_PAUSE):
            pass
        self.stopping.dismiss(waiter)

    def _run_one(self) -> bool:
        """Run one loop to its end; return whether it ended because it was told to."""
        page = None if self._notes is None else self._notes.page()
        worker = self._make(page)
        with self._lock:
            self._running.add(worker)
        try:
            worker.run()
        except Exception:
            logger.exception("A worker loop ended by itself; it is replaced.", extra={"event": "worker_crashed"})
            return False
        finally:
            with self._lock:
                self._running.discard(worker)
                self._stats += worker.stats
                self.reasons.add(worker.reason)
                self._leave_if_abandoned()
            if self._notes is not None and page is not None:
                self._notes.free(page)
        return True

    def _make(self, page: Page | None) -> Worker:
        worker = Worker(
            self.options,
            drivers=self._drivers,
            stopping=self.stopping,
            budget=self._budget,
            on_abandoned=lambda: self._give_up(worker),
            page=page,
            memory=self._memory,
            restart=self._restart,
            tally=self._housekeeper.tally,
        )
        return worker

    def _give_up(self, worker: Worker) -> None:
        with self._lock:
            self._abandoned.add(worker)
            self._leave_if_abandoned()

    def _leave_if_abandoned(self) -> None:
        """When nothing but abandoned handlers runs, nobody waits for them."""
        if self._abandoned and self._running <= self._abandoned:
            self._housekeeper.end()
            self._abandon(128 + self.stopping.signal_number if self.stopping.signal_number else 0)
