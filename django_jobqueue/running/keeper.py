"""The keeper: one thread for each loop, for what must happen while a handler runs.

It hands back the unstarted when the job in hand outlasts a slice, flushes what has finished, renews reservations,
stores what a handler says of its progress, tells a handler that its time is over, and, when the grace time ends,
releases the job in hand. It has a database connection of its own, opened only when there is such a thing to do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import groupby
from threading import Thread

from ..drivers import Driver, connections
from ..exceptions import ReservationLost
from ..jobs.records import Release, Reservation, Settlement
from ..jobs.registry import registry
from .attempt import Attempt
from .desk import Desk
from .hand import Hand, InHand
from .lanes import SLICE_SECONDS
from .options import WorkerOptions
from .progress import Aside
from .stopping import Stopping
from .surroundings import close_connections
from .timeouts import Limit

logger = logging.getLogger("django_jobqueue")

# Renewed from a third of the reservation on, so that one failed renewal costs nothing.
RENEWALS_PER_RESERVATION = 3
# After what failed, until the next look.
TRY_AGAIN_SECONDS = 1.0


class Keeper:
    """``on_abandoned`` is called when the time for a clean stop is over, and everything was given back."""

    def __init__(
        self,
        hand: Hand,
        desk: Desk,
        stopping: Stopping,
        options: WorkerOptions,
        limit: Limit,
        on_abandoned: Callable[[], None],
    ) -> None:
        self._hand = hand
        self._desk = desk
        self._stopping = stopping
        self._options = options
        self._limit = limit
        self._on_abandoned = on_abandoned
        self._waiter = stopping.waiter()
        desk.board.wake = self._waiter.wake
        self._aside = Aside()
        self._thread: Thread | None = None
        self._ended = False
        self._idle = True
        self._renew_at = 0.0

    def watch(self) -> None:
        """A batch begins: see to it that the keeper looks at it within a slice."""
        if self._thread is None:
            self._desk.board.aside = self._aside
            self._thread = Thread(target=self._run, name="jobqueue-keeper", daemon=True)
            self._thread.start()
        elif self._idle:
            self._waiter.wake()

    def end(self) -> None:
        """Nothing is held any more: end the thread, and wait for it."""
        self._ended = True
        self._waiter.wake()
        if self._thread is not None:
            self._thread.join()
            self._desk.board.aside = None
            self._aside.end()
        self._stopping.dismiss(self._waiter)

    def _run(self) -> None:
        try:
            while not self._ended:
                self._idle = True  # before the look: a batch that begins during it wakes us
                pause = self._look_safely()
                # In a longer pause than a slice it must be woken for the next batch.
                self._idle = pause is None or pause > SLICE_SECONDS
                self._waiter.pause(pause)
        finally:
            close_connections()

    def _look_safely(self) -> float | None:
        """Whatever a look meets, there is another: without one, every later job that takes long would run twice."""
        try:
            return self._look()
        except Exception:
            logger.exception("The keeper of a worker failed; it looks again in %g s.", TRY_AGAIN_SECONDS)
            close_connections()
            return TRY_AGAIN_SECONDS

    def _look(self) -> float | None:
        """Do what is due; return the seconds until the next look, None when nothing is held."""
        running = self._hand.running
        now = time.monotonic()
        if self._stopping.requested and running is not None and self._grace_left(now) <= 0:
            self._abandon(running)
            return None
        if not self._hand.held() and not self._desk.held():
            self._renew_at = 0.0
            return None
        if not self._renew_at:
            self._renew_at = now + self._options.retry_after / RENEWALS_PER_RESERVATION
        slice_left = 0.0 if self._stopping.requested else self._hand.began + SLICE_SECONDS - now
        if slice_left <= 0:
            self._clear_the_way()
        if now >= self._renew_at:
            self._renew()
        due = [self._renew_at - now]
        if slice_left > 0:
            due.append(slice_left)  # a job that begins after this look may have little time
        elif self._hand.has_unstarted or self._desk.held():
            due.append(SLICE_SECONDS)
        due += [seconds for seconds in (self._limit.look(), self._look_at_board(running)) if seconds is not None]
        if self._stopping.requested and running is not None:
            due.append(self._grace_left(now))
        return max(0.001, min(due))

    def _look_at_board(self, running: InHand | None) -> float | None:
        """An atomic job on SQLite holds the only lock: a write would wait for its end here, and its timeout with it."""
        if running is not None and self._hand.session is None:
            definition = registry.find(running.job.name)
            is_atomic = definition is not None and definition.atomic
            if is_atomic and not connections[running.job.connection].progress.is_apart:
                return None
        return self._desk.board.look()

    def _grace_left(self, now: float) -> float:
        if self._stopping.now:
            return 0.0
        if not self._options.grace:
            return float("inf")
        return self._stopping.asked_at + self._options.grace - now

    def _clear_the_way(self) -> None:
        """No job waits behind a slow one: what has not begun goes back, what has ended is settled."""
        with self._hand.giving_back:
            for driver, jobs in by_driver(self._hand.take_unstarted()):
                try:
                    driver.hand_back(jobs)
                except driver.outages:
                    self._hand.put_back(jobs)
        for driver, _ in by_driver(self._desk.held()):
            # The loop says so, and tries again; what is due stays on the desk.
            with suppress(*driver.outages):
                self._desk.flush(driver.alias)

    def _renew(self) -> None:
        """Of each store on its own: one that is out of reach costs no other its reservations."""
        held = [*self._hand.held(), *self._desk.held()]
        self._renew_at = time.monotonic() + self._options.retry_after / RENEWALS_PER_RESERVATION
        for driver, jobs in by_driver(held):
            try:
                lost = driver.renew(jobs, retry_after=self._options.retry_after)
            except driver.outages:
                self._renew_at = time.monotonic() + TRY_AGAIN_SECONDS
            else:
                self._desk.note_lost(lost)

    def _abandon(self, running: InHand) -> None:
        """Give back everything, the job in hand too: its handler goes on until the process ends, and is fenced off."""
        self._clear_the_way()
        driver = connections[running.job.connection]
        attempt = Attempt(
            running.job,
            self._options,
            registry.find(running.job.name),
            running.since,
            self._desk,
            started=running.since,
        )
        is_released = False
        with suppress(*driver.outages):
            is_released = self._release(attempt, driver)
        if not is_released:
            logger.error("The job %s could not be released; it is rescued when its reservation ends.", running.job.id)
        self._on_abandoned()

    def _release(self, attempt: Attempt, driver: Driver) -> bool:
        """An atomic job holds the lock of its row to its end: without a session to end, as on SQLite, it stays so."""
        if attempt.is_atomic:
            if self._hand.session is None:
                return False
            driver.end_session(self._hand.session)
        self._desk.hand_in(attempt.end(_abandoned(attempt)))
        return True


def _abandoned(attempt: Attempt) -> Settlement:
    """A job that may run only once, and did start, is not started again."""
    if attempt.max_attempts > 1:
        return Release(attempt.job, delay=0)
    error = ReservationLost("The worker had to stop before this job ended, and it has only one attempt.")
    return attempt.fail(attempt.record(error))


def by_driver(jobs: Collection[Reservation]) -> Iterable[tuple[Driver, list[Reservation]]]:
    ordered = sorted(jobs, key=lambda job: job.connection)
    for alias, group in groupby(ordered, key=lambda job: job.connection):
        yield connections[alias], list(group)
