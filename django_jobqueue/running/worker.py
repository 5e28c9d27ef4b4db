"""The loop: rescue and stage by the clock, reserve, run, settle, wait; until asked to stop.

It ends because of what it was told only: neither what a job did nor what the store does ends it.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from datetime import datetime

from django.dispatch import Signal

from ..conf import get_settings
from ..drivers import Driver, connections
from ..drivers.base import PRUNE_LIMIT, Ear
from ..exceptions import InvalidConnection
from ..jobs.records import Reserved, ReserveLimit
from ..operations.pruning import deletes_of
from ..signals import worker_started, worker_stopped, worker_stopping
from .budget import Budget
from .desk import Desk
from .execution import execute
from .hand import Hand
from .housekeeping import host_name
from .keeper import Keeper, by_driver
from .lanes import MOST_ROWS, SLICE_SECONDS, Averages, Lane, Lanes
from .memory import MemoryLimit
from .notes import Page
from .options import EVERY_QUEUE, WorkerOptions, WorkerStats
from .outages import StoreHealth
from .rescuing import rescue, sweep
from .restarting import Restart
from .stopping import Stopping
from .surroundings import Surroundings, refresh_connections
from .tally import Tally
from .timeouts import Limit

logger = logging.getLogger("django_jobqueue")

RESCUE_INTERVAL = 1.0
# What is old only takes room; while there is much of it, a chunk with each rescue.
PRUNE_INTERVAL = 60.0
# Only after a crash is there something to sweep up, or after a cancel.
SWEEP_INTERVAL = 5.0
# Longer than hints are held back after one that was given.
LOOK_AGAIN_SECONDS = 0.01
# Where no hint tells of a job, others often follow the one that polling found: the pauses begin here, and double.
SHORTEST_POLL = 0.02
# On top of its longest pause, until a loop that does not turn is not well.
PATIENCE = 10.0


def new_identity(name: str = "") -> str:
    """Who holds a reservation: host and process for people, a random part because both are used again."""
    return f"{name or host_name()}:{os.getpid()}:{secrets.token_hex(4)}"


def drivers_of(options: WorkerOptions) -> list[Driver]:
    """The connections that a worker in the process of the dispatches serves."""
    return connections.all() if options.connections is None else [connections[alias] for alias in options.connections]


def shared_drivers_of(options: WorkerOptions) -> list[Driver]:
    """The connections that a worker process of its own serves; raises InvalidConnection when there is none."""
    found = drivers_of(options)
    private = [driver.alias for driver in found if not driver.is_shared]
    if private and (options.connections is not None or len(private) == len(found)):
        raise InvalidConnection(
            f"The queue connection {private[0]!r} lives in the memory of one process, where no worker of another "
            "process finds its jobs. Run them there: Worker().work_once()."
        )
    return [driver for driver in found if driver.is_shared]


class Worker:
    """One loop. ``options`` says what it serves; ``budget`` counts the attempts of the whole process.

    Without a ``tally``, as where a caller uses ``work_once``, what it does is not counted in the store.
    """

    def __init__(
        self,
        options: WorkerOptions | None = None,
        *,
        drivers: list[Driver] | None = None,
        stopping: Stopping | None = None,
        budget: Budget | None = None,
        on_abandoned: Callable[[], None] = lambda: None,
        page: Page | None = None,
        memory: MemoryLimit | None = None,
        restart: Restart | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.options = options or WorkerOptions.from_settings()
        self.identity = new_identity(self.options.name)
        self.reason = ""
        self.stats = WorkerStats()
        self.stopping = stopping or Stopping()
        self.drivers = drivers_of(self.options) if drivers is None else drivers
        self._budget = budget or Budget(self.options.max_jobs)
        self._memory = memory or MemoryLimit(self.options.memory)
        self._restart = restart or Restart()
        if page is not None:
            page.introduce(self.identity)
        self._waiter = self.stopping.waiter()
        self._strict = None if EVERY_QUEUE in self.options.queues else self.options.queues
        self._lanes = Lanes(self.drivers, self._strict)
        self._averages = Averages()
        self._hand = Hand()
        self._desk = Desk(self.stats, lambda: self.stopping.requested, tally)
        self._limit = Limit(page)
        self._keeper = Keeper(
            self._hand, self._desk, self.stopping, self.options, self._limit, on_abandoned, self.drivers
        )
        self._health = {
            driver.alias: StoreHealth(driver, self.options.sleep, self.options.error_backoff_cap)
            for driver in self.drivers
        }
        self._listened: list[Driver] = []
        self._maintain_at = self._sweep_at = self._prune_at = self._stage_at = self._woken_at = 0.0
        self._poll = self.options.sleep
        self._was_woken = False
        self._turned_at = time.monotonic()

    # The loop

    def run(self) -> WorkerStats:
        """Work until told to stop; return what was done."""
        self._send(worker_started, queues=list(self.options.queues))
        ends_at = None if self.options.max_time is None else time.monotonic() + self.options.max_time
        reason = None
        try:
            while (reason := self._reason_to_stop(ends_at)) is None:
                self._turned_at = time.monotonic()
                refresh_connections()
                # Not behind the wait, where each step keeps a job waiting.
                self._surroundings = Surroundings()
                self._end_turn()
                self._settle_what_waits()
                if self._turn():
                    continue
                if self.options.stop_when_empty and self._all_answered():
                    reason = "empty"
                    break
                self._wait(ends_at)
        finally:
            self.reason = reason or "error"
            self._send(worker_stopping, reason=self.reason)
            self._give_back()
            for driver in self._listened:
                driver.unlisten(self._waiter)
            self._send(worker_stopped, reason=self.reason, stats=self.stats)
        return self.stats

    @property
    def is_well(self) -> bool:
        """Whether it turns, or is at a job whose time is not over."""
        now = time.monotonic()
        if self._hand.running is not None:
            return not self._limit.is_overdue(now)
        return now - self._turned_at < max(self.options.sleep, self.options.error_backoff_cap) + PATIENCE

    def work_once(self, now: datetime | None = None) -> bool:
        """Rescue, stage, reserve and run at most one job, in this order, and in this thread only.

        Returns whether there was a job. ``now`` is the store's time where a caller owns the clock; the store's
        outages are raised.
        """
        self._desk.now = now
        self._surroundings = Surroundings()
        for driver in self.drivers:
            self._desk.flush(driver.alias)  # what an outage has left
            rescue(driver, self.options.max_attempts, now)
            self._lanes.discover(driver)
            for lane in self._lanes.of(driver):
                driver.stage(lane.queue, now=now)
        for lane in self._lanes.in_turn():
            limit = ReserveLimit(rows=1, max_attempts=self.options.max_attempts)
            reserved = lane.driver.reserve(
                lane.queue, self.identity, limit, retry_after=self.options.retry_after, now=now
            )
            if reserved.jobs:
                self._hand.fill(reserved.jobs)
                self._run_jobs(lane, len(reserved.jobs))
                self._desk.flush(lane.driver.alias)
                return True
        return False

    def _reason_to_stop(self, ends_at: float | None) -> str | None:
        if self.stopping.requested:
            return self.stopping.reason
        if ends_at is not None and time.monotonic() >= ends_at:
            return "max_time"
        if self._budget.is_spent:
            return "max_jobs"
        if self._memory.is_reached:
            return "memory"
        return self._restart.reason or None

    def _turn(self) -> bool:
        """Look at every queue once; return whether there was anything to do."""
        self._maintain_when_due()
        staged = self._stage_when_due()
        if self._reserve_and_run():
            return True
        if staged is None:
            # A batch that was not full, or none: what became due meanwhile is staged before the next look.
            self._stage_at = 0.0
            return True
        return staged > 0

    def _reserve_and_run(self) -> bool:
        """Reserve from the first queue that has something, and run it; return whether there may be more to do."""
        for lane in self._lanes.in_turn():
            health = self._health[lane.driver.alias]
            if not health.may_try:
                continue
            limit = lane.limit(self._most_rows(lane), self.options.max_attempts, self._averages)
            granted = self._budget.take(limit.rows)
            if not granted:
                return False
            if granted < limit.rows:
                limit = limit._replace(rows=granted)
            reserved = Reserved([], more=False)
            asked = time.monotonic()
            try:
                with health.reaching():
                    reserved = lane.driver.reserve(
                        lane.queue,
                        self.identity,
                        limit,
                        retry_after=self.options.retry_after,
                        after=lane.mark,
                    )
            finally:
                self._budget.give_back(granted - len(reserved.jobs))
            looked_at_all = lane.mark is None
            lane.note_reserved(reserved, time.monotonic(), self.options.sleep)
            if time.monotonic() - asked >= self.options.retry_after:
                self._give_up(lane, reserved)
            elif reserved.jobs:
                self._run_batch(lane, reserved)
            if reserved.jobs or reserved.more or not looked_at_all:
                return True
        return False

    def _most_rows(self, lane: Lane) -> int:
        """In a caller's transaction, as in a TestCase, no keeper could hand anything back: one job at a time."""
        return 1 if lane.driver.in_transaction() else MOST_ROWS

    def _run_batch(self, lane: Lane, reserved: Reserved) -> None:
        if not self._was_woken:
            self._poll = SHORTEST_POLL
        if not reserved.more:
            self._stage_at = 0.0  # staged again before the next look at the queues
        self._hand.fill(reserved.jobs, lane.driver.session())
        if not lane.driver.in_transaction():
            self._keeper.watch()
        with self._health[lane.driver.alias].reaching():
            self._run_jobs(lane, len(reserved.jobs))
            self._desk.flush(lane.driver.alias)
        self._hand_back()

    def _give_up(self, lane: Lane, reserved: Reserved) -> None:
        """The process was stopped while it reserved: what it got may be running elsewhere, or be over, by now."""
        self._budget.give_back(len(reserved.jobs))
        lane.mark = None
        self._hand.strand(reserved.jobs)
        self._hand_back()

    def _run_jobs(self, lane: Lane, count: int) -> None:
        """Run what is in hand, to its end or to a stop; an outage of the store ends it too."""
        arrived = time.monotonic()
        unbegun = count
        self._limit.begin()
        try:
            while not self.stopping.requested and (job := self._hand.begin_next()) is not None:
                unbegun -= 1
                began = time.monotonic()
                try:
                    execute(job, lane.driver, self._desk, self.options, arrived, self._surroundings, self._limit)
                finally:
                    self._hand.end()
                    self._limit.clear()
                now = time.monotonic()
                # Settling included, where a job is settled by itself: so much of a slice does it take.
                lane.note_run(now - began)
                self._averages.note(job.name, now - began)
                if now - arrived >= SLICE_SECONDS:
                    break  # the averages were wrong: what is left goes back, and what has ended is settled
        finally:
            self._limit.end()
            if unbegun:
                # Handed back, by the keeper or by us: no attempts, and they stand before the mark.
                self._budget.give_back(unbegun)
                lane.mark = None

    # By the clock

    def _maintain_when_due(self) -> None:
        now = time.monotonic()
        if now < self._maintain_at:
            return
        self._maintain_at = now + RESCUE_INTERVAL * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load
        for driver in self._reachable():
            with self._health[driver.alias].reaching():
                rescue(driver, self.options.max_attempts, None)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_INTERVAL * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load
            for driver in self._reachable():
                with self._health[driver.alias].reaching():
                    sweep(driver)
        if now >= self._prune_at:
            self._prune(now)

    def _prune(self, now: float) -> None:
        pruned = 0
        for driver in self._reachable():
            with self._health[driver.alias].reaching():
                for delete in deletes_of(driver, get_settings().prune).values():
                    pruned = max(pruned, delete(PRUNE_LIMIT))
        if pruned < PRUNE_LIMIT:
            self._prune_at = now + PRUNE_INTERVAL * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load

    def _stage_when_due(self) -> int | None:
        """Stage each queue once; return how many jobs became ready, None when it was not time."""
        now = time.monotonic()
        if now < self._stage_at:
            return None
        self._stage_at = now + self.options.sleep * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load
        staged = 0
        for driver in self._reachable():
            with self._health[driver.alias].reaching():
                self._lanes.discover(driver)
                for lane in self._lanes.of(driver):
                    staged += driver.stage(lane.queue)
        return staged

    def _wait(self, ends_at: float | None) -> None:
        if not self._listened:
            self._listen()
            return  # what came before we listened was told to nobody: look once more
        self._lanes.drop_marks()
        down = [health.seconds_to_next_try() for health in self._health.values() if health.is_down]
        now = time.monotonic()
        pause = min(self._poll, self.options.sleep) * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load
        if now - self._woken_at < LOOK_AGAIN_SECONDS:
            pause = LOOK_AGAIN_SECONDS  # what came just after the hint was not told of again
        if len(down) == len(self._health):
            pause = max(pause, min(down, default=pause))
        if ends_at is not None:
            pause = min(pause, max(0.0, ends_at - now))
        if self.stopping.requested:
            return
        self._was_woken = self._waiter.pause(pause, self._ears())
        if self._was_woken:
            self._woken_at = self._turned_at = time.monotonic()
            if self._reason_to_stop(ends_at) is None:
                self._reserve_and_run()  # before all that is done by the clock: somebody has just dispatched it
        else:
            self._stage_at = 0.0
            self._poll = min(self._poll * 2, self.options.sleep)

    def _listen(self) -> None:
        """From the first wait on, hear of new jobs; a worker that never waits needs no news."""
        self._listened = list(self.drivers)
        for driver in self.drivers:
            driver.listen(self._waiter, self._strict)
        for ear in self._ears():
            if ear.begin() is not None:
                ear.end()

    def _ears(self) -> list[Ear]:
        """What to listen to; nothing of a store that is out of reach, which would be waited for."""
        return [
            driver.ear for driver in self._listened if driver.ear is not None and not self._health[driver.alias].is_down
        ]

    # The store

    def _settle_what_waits(self) -> None:
        """What an outage has left: ended attempts, and jobs that could not be handed back."""
        self._hand_back()
        for driver, _jobs in by_driver(self._desk.held()):
            health = self._health[driver.alias]
            if health.may_try:
                with health.reaching():
                    self._desk.flush(driver.alias)

    def _hand_back(self) -> None:
        with self._hand.giving_back:  # what the keeper is giving back is back before we look for it
            self._give_unstarted()

    def _give_unstarted(self) -> None:
        """Return what has not started; what a store in trouble does not take stays, renewed, for another try."""
        for driver, jobs in by_driver([*self._hand.take_unstarted(), *self._hand.take_stranded()]):
            is_back = False
            if self._health[driver.alias].may_try:
                with self._health[driver.alias].reaching():
                    driver.hand_back(jobs)
                    is_back = True
            if not is_back:
                self._hand.strand(jobs)

    def _give_back(self) -> None:
        """At the end: nothing of this loop stays reserved, as far as the store can be reached."""
        self._hand_back()
        deadline = time.monotonic() + (self.options.grace or self.options.error_backoff_cap)
        self._settle_what_waits()
        while (
            (self._desk.held() or self._hand.held())
            and not self.stopping.now
            and (left := deadline - time.monotonic()) > 0
        ):
            self._waiter.pause(min(self.options.sleep, left))
            for health in self._health.values():
                health.hurry()
            self._settle_what_waits()
        self._end_turn()
        for job in self._desk.held():
            logger.error("The end of the job %s could not be stored: it will be run again.", job.id)
        self._keeper.end()
        self.stopping.dismiss(self._waiter)

    def _reachable(self) -> list[Driver]:
        return [driver for driver in self.drivers if self._health[driver.alias].may_try]

    def _all_answered(self) -> bool:
        return all(health.has_answered for health in self._health.values())

    def _end_turn(self) -> None:
        for health in self._health.values():
            health.end_turn()

    def _send(self, signal: Signal, **arguments: object) -> None:
        signal.send_robust(type(self), worker=self.identity, **arguments)
