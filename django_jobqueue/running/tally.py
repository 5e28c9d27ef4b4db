"""What the loops of a process have done since it was last stored, in memory: to count costs no job a statement."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from threading import Lock
from uuid import UUID

from ..jobs.counts import MINUTE, Count, CountKey
from ..jobs.records import Complete, Fail
from ..jobs.times import to_microseconds
from .attempt import Ended

logger = logging.getLogger("django_jobqueue")

# Where a store takes no counts, while jobs of another run: some hours of a hundred jobs, and a few megabytes.
MOST_COUNTS = 20_000


class Tally:
    """Counts of the ``connections`` that somebody stores them for; of others nothing is counted."""

    def __init__(self, connections: Iterable[str]) -> None:
        self._connections = frozenset(connections)
        self._counts: dict[CountKey, Count] = {}
        self._lock = Lock()

    def add(self, batch: Sequence[Ended], owned: Collection[UUID]) -> None:
        """Count ends of one connection that were settled together, in the minute of the last of them."""
        connection = batch[0].attempt.job.connection
        if connection not in self._connections:
            return
        minute = _minute(batch[-1])
        queue = name = None
        count = Count()
        are_all_owned = len(owned) == len(batch)  # as nearly always; to hash an id takes longer than all else here
        with self._lock:
            for attempt, settlement, elapsed, *_ in batch:
                job = attempt.job
                if job.name != name or job.queue != queue:  # in most batches all are the same
                    queue, name = job.queue, job.name
                    count = self._counts.setdefault(CountKey(minute, connection, queue, name), Count())
                if not are_all_owned and job.id not in owned:
                    count.lost += 1
                elif isinstance(settlement, Complete):
                    count.processed += 1
                elif isinstance(settlement, Fail):
                    count.failed += 1
                else:
                    count.released += 1
                waited = attempt.waited
                count.elapsed_sum += elapsed
                count.waited_sum += waited
                if elapsed > count.elapsed_max:
                    count.elapsed_max = elapsed
                if waited > count.waited_max:
                    count.waited_max = waited

    def take(self, connections: Collection[str]) -> dict[CountKey, Count]:
        """Hand over what was counted of some connections."""
        with self._lock:
            taken = {key: count for key, count in self._counts.items() if key.connection in connections}
            for key in taken:
                del self._counts[key]
        return taken

    def put_back(self, counts: dict[CountKey, Count]) -> None:
        """What was taken could not be stored: keep it for another time, unless it has become too much."""
        with self._lock:
            if len(self._counts) + len(counts) <= MOST_COUNTS:
                for key, count in counts.items():
                    self._counts.setdefault(key, Count()).add(count)
                return
        logger.warning("Counts of %s minutes of jobs could not be stored for long, and were dropped.", len(counts))


def _minute(ended: Ended) -> int:
    moment = to_microseconds(ended.attempt.started_at) + round(ended.elapsed * 1_000_000)
    return moment - moment % MINUTE
