"""The keeper: one thread for each loop, for what must happen while a handler runs.

It hands back the unstarted when the job in hand outlasts a slice, flushes what has finished, renews reservations,
and, when the grace time ends, releases the job in hand. It has a database connection of its own, opened only when
there is such a thing to do.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from threading import Thread

from ..drivers import Driver, connections
from ..exceptions import ReservationLost
from ..jobs.errors import class_path
from ..jobs.records import AttemptRecord, Fail, Release, Reservation, Settlement
from .desk import Desk
from .hand import Hand, InHand
from .lanes import SLICE_SECONDS
from .options import WorkerOptions
from .stopping import Stopping
from .surroundings import close_connections

logger = logging.getLogger("django_jobqueue")

# Renewed from a third of the reservation on, so that one failed renewal costs nothing.
RENEWALS_PER_RESERVATION = 3


class Keeper:
    """``on_abandoned`` is called when the time for a clean stop is over, and everything was given back."""

    def __init__(
        self, hand: Hand, desk: Desk, stopping: Stopping, options: WorkerOptions, on_abandoned: Callable[[], None]
    ) -> None:
        self._hand = hand
        self._desk = desk
        self._stopping = stopping
        self._options = options
        self._on_abandoned = on_abandoned
        self._waiter = stopping.waiter()
        self._thread: Thread | None = None
        self._ended = False
        self._idle = True
        self._renew_at = 0.0

    def watch(self) -> None:
        """A batch begins: see to it that the keeper looks at it within a slice."""
        if self._thread is None:
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
        self._stopping.dismiss(self._waiter)

    def _run(self) -> None:
        try:
            while not self._ended:
                self._idle = True  # before the look: a batch that begins during it wakes us
                pause = self._look()
                self._idle = pause is None
                self._waiter.pause(pause)
        except BaseException:
            logger.exception("A keeper thread ended by itself; its worker goes on without renewals.")
        finally:
            close_connections()

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
        if running is not None and (now - running.since >= SLICE_SECONDS or self._stopping.requested):
            self._clear_the_way()
        if now >= self._renew_at:
            self._renew()
        return self._pause(running, now)

    def _pause(self, running: InHand | None, now: float) -> float:
        due = [self._renew_at - now]
        if running is not None and now - running.since < SLICE_SECONDS:
            due.append(running.since + SLICE_SECONDS - now)
        else:
            due.append(SLICE_SECONDS)
        if self._stopping.requested:
            due.append(self._grace_left(now))
        return max(0.001, min(due))

    def _grace_left(self, now: float) -> float:
        if self._stopping.now:
            return 0.0
        if not self._options.grace:
            return float("inf")
        return self._stopping.asked_at + self._options.grace - now

    def _clear_the_way(self) -> None:
        """No job waits behind a slow one: what has not begun goes back, what has ended is settled."""
        unstarted = self._hand.take_unstarted()
        if not self._hand_back(unstarted):
            self._hand.put_back(unstarted)
        try:
            self._desk.flush()
        except self._outages():
            pass  # the loop says so, and tries again; what is due stays on the desk

    def _hand_back(self, unstarted: list[Reservation]) -> bool:
        try:
            for driver, jobs in by_driver(unstarted):
                driver.hand_back(jobs)
        except self._outages():
            return False
        return True

    def _renew(self) -> None:
        held = [*self._hand.held(), *self._desk.held()]
        soon = time.monotonic() + 1.0
        for driver, jobs in by_driver(held):
            try:
                lost = driver.renew(jobs, retry_after=self._options.retry_after)
            except driver.outages:
                self._renew_at = soon
                return
            self._desk.note_lost(lost)
        self._renew_at = time.monotonic() + self._options.retry_after / RENEWALS_PER_RESERVATION

    def _abandon(self, running: InHand) -> None:
        """Give back everything, the job in hand too: its handler goes on until the process ends, and is fenced off."""
        self._clear_the_way()
        driver = connections[running.job.connection]
        try:
            driver.settle([_abandoned(running, self._options.max_attempts)])
            logger.warning(
                "job %s %s was released: it did not finish before the worker had to stop",
                running.job.name,
                running.job.id,
                extra={"event": "job_abandoned", "job": running.job.name, "id": str(running.job.id)},
            )
        except driver.outages:
            logger.error("The job %s could not be released; it is rescued when its reservation ends.", running.job.id)
        self._on_abandoned()

    def _outages(self) -> tuple[type[BaseException], ...]:
        return tuple({error for driver in connections.all() for error in driver.outages})


def _abandoned(running: InHand, default_max_attempts: int) -> Settlement:
    """A job that may run only once, and did start, is not started again."""
    job = running.job
    limit = default_max_attempts if job.max_attempts is None else job.max_attempts
    if limit > 1:
        return Release(job, delay=0)
    error = ReservationLost("The worker had to stop before this job ended, and it has only one attempt.")
    ran = time.monotonic() - running.since
    return Fail(
        job,
        AttemptRecord(
            number=job.attempt,
            worker=job.worker,
            started=job.reserved_at.isoformat(),
            waited=0.0,
            ran=round(ran, 6),
            exception_class=class_path(error),
            message=str(error),
        ),
    )


def by_driver(jobs: Collection[Reservation]) -> Iterable[tuple[Driver, list[Reservation]]]:
    ordered = sorted(jobs, key=lambda job: job.connection)
    for alias, group in groupby(ordered, key=lambda job: job.connection):
        yield connections[alias], list(group)
