"""The housekeeper: one thread for each worker process, for what no job waits for.

It says every ten seconds that the process lives, and takes that back at a clean stop; it stores every five seconds, and
at a clean stop, what was done; it rolls up and deletes what is old, a little at a time. It has a connection of its own
for each of these moments only, so that a store that is slow or locked holds up nothing else. Whatever it cannot do is
done at its next look, or not at all.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from .. import __version__
from ..conf import PRUNED_ROWS, get_settings
from ..drivers import Driver, ledgers_of
from ..jobs.workers import BEAT_SECONDS, MAX_WORKER_NAME, WorkerReport
from ..operations.pruning import CHUNK
from .memory import resident_bytes
from .options import WorkerOptions, WorkerStats
from .stopping import Stopping
from .surroundings import close_connections
from .tally import Tally

if TYPE_CHECKING:  # at import it would load the models, and this may be imported before the apps are ready
    from ..drivers.ledger import Ledger

logger = logging.getLogger("django_jobqueue")

# Transactions for one kind between two heartbeats: many, and yet no heartbeat is late because of them.
MOST_CHUNKS = 20
PRUNE_INTERVAL = 3600.0
# What is counted is lost with a process that is killed: so much at most, for a row or a few in one transaction.
COUNT_SECONDS = 5.0
# What a stop waits for a store that does not answer.
LAST_SECONDS = 2.0
STARTED = time.monotonic()  # of this process, or near enough


def host_name() -> str:
    return "".join(character for character in socket.gethostname() if character.isprintable())[:MAX_WORKER_NAME]


def _keeps(driver: Driver, ledger: Ledger) -> bool:
    return driver.ledger is not None and driver.ledger.database == ledger.database


class Housekeeper:
    """``stats`` tells what the process has done so far, ``is_well`` whether its loops turn.

    ``on_well`` is called after each heartbeat that every store has taken while they do.
    """

    def __init__(
        self,
        options: WorkerOptions,
        drivers: Sequence[Driver],
        stats: Callable[[], WorkerStats],
        *,
        is_well: Callable[[], bool] = lambda: True,
        on_well: Callable[[], None] = lambda: None,
        is_embedded: bool = False,
    ) -> None:
        self.id = uuid4()
        self._options = options
        # In a caller's transaction, as in a TestCase, another connection would see nothing, or wait for it.
        self._ledgers = [ledger for ledger in ledgers_of(drivers) if not ledger.in_transaction]
        # Whose runs are counted where.
        self._aliases = {
            ledger.database: [driver.alias for driver in drivers if _keeps(driver, ledger)] for ledger in self._ledgers
        }
        self._stats = stats
        self._is_well = is_well
        self._on_well = on_well
        self._is_embedded = is_embedded
        self._host = host_name()
        self._beat_at = self._prune_at = 0.0
        #: Where the loops count what they do, for the databases that this process keeps house in.
        self.tally = Tally(alias for aliases in self._aliases.values() for alias in aliases)
        self._ends = Stopping()
        self._waiter = self._ends.waiter()
        self._thread: Thread | None = None

    def start(self) -> None:
        if self._ledgers:
            self._thread = Thread(target=self._run, name="jobqueue-housekeeper", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Take back that this process works; a store that does not answer is not waited for."""
        self._ends.ask("end")
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        is_known = False
        while not self._ends.requested:
            try:
                self._look()
            except Exception:
                logger.exception("The housekeeper of a worker failed; it looks again in %g s.", BEAT_SECONDS)
            is_known = True
            self._waiter.wait(min(BEAT_SECONDS, COUNT_SECONDS))
        self._each(self._leave if is_known else self._count)

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + BEAT_SECONDS
            if self._each(self._beat) and self._is_well():
                self._on_well()
        self._each(self._count)
        if time.monotonic() >= self._prune_at:
            self._prune()

    def _each(self, act: Callable[[Ledger], None]) -> bool:
        """Do one thing in every database; return whether all went well. What one refuses costs no other."""
        done = 0
        for ledger in self._ledgers:
            try:
                # The loops say that a store is out of reach.
                with suppress(*ledger.outages):
                    act(ledger)
                    done += 1
            except Exception:
                logger.exception("The housekeeper of a worker failed; it looks again in %g s.", BEAT_SECONDS)
        close_connections()
        return done == len(self._ledgers)

    def _prune(self) -> None:
        """At the start, since many a process does not live for long, and then by the clock."""
        interval = PRUNE_INTERVAL * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load
        self._prune_at = time.monotonic() + interval
        ages = get_settings().prune
        for what in PRUNED_ROWS:
            if (age := ages[what]) is not None:
                self._each(partial(self._prune_rows, what, age))
        self._each(self._roll_up)

    def _prune_rows(self, what: str, age: float, ledger: Ledger) -> None:
        deleted = self._in_chunks(lambda limit: ledger.prune(what, age, limit=limit))
        if deleted:
            logger.info(
                "pruned %s of %r in the database %r",
                deleted,
                what.lower(),
                ledger.database,
                extra={"event": "rows_pruned", "what": what.lower(), "count": deleted, "database": ledger.database},
            )

    def _roll_up(self, ledger: Ledger) -> None:
        minutes = self._in_chunks(ledger.roll_up)
        if minutes:
            logger.info(
                "rolled up %s minutes of stats to hours in the database %r",
                minutes,
                ledger.database,
                extra={"event": "rows_rolled_up", "count": minutes, "database": ledger.database},
            )

    def _in_chunks(self, act: Callable[[int], int]) -> int:
        total = 0
        for _ in range(MOST_CHUNKS):
            number = act(CHUNK)
            total += number
            if number < CHUNK or self._ends.requested:
                return total
        self._prune_at = 0.0  # there is more, after the next heartbeat
        return total

    def _count(self, ledger: Ledger) -> None:
        """Store what was counted since the last time; what cannot be stored is kept for the next."""
        counts = self.tally.take(self._aliases[ledger.database])
        if not counts:
            return
        try:
            ledger.count(counts)
        except BaseException:
            self.tally.put_back(counts)
            raise

    def _beat(self, ledger: Ledger) -> None:
        ledger.beat(self._report())

    def _leave(self, ledger: Ledger) -> None:
        try:
            self._count(ledger)
        finally:
            ledger.leave(self.id)

    def _report(self) -> WorkerReport:
        stats = self._stats()
        return WorkerReport(
            id=self.id,
            name=self._options.name or self._host,
            host=self._host,
            pid=os.getpid(),
            queues=self._options.queues,
            workers=self._options.workers,
            version=__version__,
            is_embedded=self._is_embedded,
            ran=time.monotonic() - STARTED,
            processed=stats.processed,
            released=stats.released,
            failed=stats.failed,
            lost=stats.lost,
            memory=resident_bytes(),
        )
