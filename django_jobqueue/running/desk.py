"""The desk: where ended attempts wait for the end of their slice, are settled together, and announced.

The loop and its keeper share one desk; whoever flushes holds its lock for that transaction. What could not be
settled because the store is out of reach stays here, its reservation renewed, until it can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from threading import RLock
from uuid import UUID

from django.dispatch import Signal

from ..dispatching.batches import close
from ..dispatching.dispatch import announce
from ..drivers import Driver, connections
from ..jobs.chunks import cut, settlement_bytes
from ..jobs.records import Complete, Fail, Release, Reservation
from ..signals import job_failed, job_lost, job_processed, job_released
from .attempt import Ended
from .options import WorkerStats
from .progress import Board
from .tally import Tally

logger = logging.getLogger("django_jobqueue")


class Desk:
    def __init__(self, stats: WorkerStats, is_stopping: Callable[[], bool], tally: Tally | None = None) -> None:
        self.now: datetime | None = None  # the store's time, where a caller owns the clock
        self._stats = stats
        self._is_stopping = is_stopping
        self._tally = tally
        self._pending: list[Ended] = []
        self._lock = RLock()
        self._lost: set[UUID] = set()
        self.board = Board()

    def hand_in(self, ended: Ended) -> None:
        """Take an ended attempt; settle it now when it must not wait. Raises the store's outages."""
        if ended.is_settled:
            self._report([ended], {ended.attempt.job.id})
            return
        with self._lock:
            self._pending.append(ended)
        if ended.settle_at_once:
            self.flush(ended.attempt.job.connection)

    def flush(self, connection: str) -> None:
        """Settle together what waits for a store, and for no other. Raises the store's outages."""
        if not self._pending:
            return
        with self._lock:
            waiting = [ended for ended in self._pending if ended.attempt.job.connection == connection]
            for batch in cut(waiting, _size):
                owned = self._settle(connections[connection], batch)
                settled = {id(ended) for ended in batch}
                self._pending = [ended for ended in self._pending if id(ended) not in settled]
                self._report(batch, owned)

    def _settle(self, driver: Driver, batch: list[Ended]) -> set[UUID]:
        try:
            return driver.settle([ended.settlement for ended in batch], now=self.now)
        except Exception as error:
            if isinstance(error, driver.outages) and not isinstance(error, driver.refusals):
                raise
            if len(batch) == 1:
                # Not an outage, so it would be refused for ever: its reservation expires and is rescued.
                logger.exception("The end of the job %s cannot be stored.", batch[0].attempt.job.id)
                return set()
        return set().union(*(self._settle(driver, [ended]) for ended in batch))

    def held(self) -> list[Reservation]:
        """The reservations that are still to be settled."""
        return [ended.attempt.job for ended in self._pending]

    def note_lost(self, ids: Iterable[UUID]) -> None:
        self._lost.update(ids)

    def report(self, job: Reservation, percent: int | None, stage: str) -> None:
        self.board.report(job, percent, stage)

    def asks_to_stop(self, job: Reservation) -> bool:
        return self._is_stopping() or job.id in self._lost

    def _report(self, batch: list[Ended], owned: set[UUID]) -> None:
        if self._tally is not None:
            self._tally.add(batch, owned)
        followed = []
        for ended in batch:
            job_id = ended.attempt.job.id
            self._lost.discard(job_id)
            if job_id not in owned:
                self._stats.lost += 1
                _send(job_lost, ended)
                continue
            _ANNOUNCERS[type(ended.settlement)](self._stats, ended)
            if ended.attempt.job.flow is not None:
                followed.append(ended)
        if followed:
            self._see_to_what_follows(followed)
        if self.board:
            ends = [(one.attempt.job, one.settlement if one.attempt.job.id in owned else None) for one in batch]
            self.board.close(ends, self.now)

    def _see_to_what_follows(self, batch: list[Ended]) -> None:
        """Say what was stored, and end the batches whose last member this was."""
        driver = connections[batch[0].attempt.job.connection]
        batches: dict[UUID, None] = {}
        last: UUID | None = None  # the members of a batch share its id, and come one after the other
        for ended in batch:
            settlement = ended.settlement
            if isinstance(settlement, Release):
                continue
            if settlement.then:
                announce(driver, settlement.then)
            if settlement.batch is not None and settlement.batch is not last:
                last = settlement.batch
                batches[last] = None
        # After the commit that they left it by. What an outage leaves open a sweep of any worker ends.
        with suppress(*driver.outages):
            for batch_id in batches:
                close(driver, batch_id, now=self.now)


def _size(ended: Ended) -> int:
    return settlement_bytes(ended.settlement)


def _announce_completed(stats: WorkerStats, ended: Ended) -> None:
    stats.processed += 1
    if job_processed.receivers:
        _send(job_processed, ended)


def _announce_released(stats: WorkerStats, ended: Ended) -> None:
    stats.released += 1
    settlement = ended.settlement
    if isinstance(settlement, Release) and settlement.record is None:
        _send(job_released, ended, delay=settlement.delay)
    elif isinstance(settlement, Release):
        _send_failed(ended, settlement, dead_lettered=False, delay=settlement.delay)


def _announce_failed(stats: WorkerStats, ended: Ended) -> None:
    stats.failed += 1
    if isinstance(ended.settlement, Fail):
        _send_failed(ended, ended.settlement, dead_lettered=True, delay=None)


def _send_failed(ended: Ended, settlement: Release | Fail, *, dead_lettered: bool, delay: float | None) -> None:
    record = settlement.record
    if record is not None:
        _send(
            job_failed,
            ended,
            exception_class=record.exception_class,
            exception_message=record.message,
            traceback=record.traceback,
            dead_lettered=dead_lettered,
            delay=delay,
        )


def _send(signal: Signal, ended: Ended, **more: object) -> None:
    attempt = ended.attempt
    times = {"waited": attempt.waited, "elapsed": ended.elapsed}
    connections[attempt.job.connection].send(signal, **times, **attempt.identity, **more)


_ANNOUNCERS: dict[type, Callable[[WorkerStats, Ended], None]] = {
    Complete: _announce_completed,
    Release: _announce_released,
    Fail: _announce_failed,
}
