"""Telling that a job is ready: this process' waiters at once, other processes by NOTIFY on PostgreSQL.

Told after the commit, by a statement of its own: a transaction that notifies commits one at a time, and this one has
nothing to flush. Told at most once in a few milliseconds for each queue; whoever is woken looks again after that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from django.db import DatabaseError, InterfaceError, connections, transaction

from .listening import CHANNEL

# Woken once, a worker takes whatever has come meanwhile, so that a burst needs one hint and not thousands.
DEBOUNCE_SECONDS = 0.005
MOST_QUEUES = 1000


class Hints:
    """The hints of one driver."""

    def __init__(self, database: str, wake_listeners: Callable[[str], None]) -> None:
        self._database = database
        self._wake_listeners = wake_listeners
        self._told: dict[str, float] = {}

    def tell(self, queues: Iterable[str], *, notifies: bool) -> None:
        """Tell of ready jobs, after the caller's transaction when there is one."""
        told = partial(self._tell, set(queues), notifies)
        if connections[self._database].in_atomic_block:
            transaction.on_commit(told, using=self._database, robust=True)
        else:
            told()

    def _tell(self, queues: set[str], notifies: bool) -> None:
        for queue in queues:
            self._wake_listeners(queue)
            if notifies and self._is_time(queue):
                self._notify(queue)

    def _is_time(self, queue: str) -> bool:
        now = time.monotonic()
        if now - self._told.get(queue, 0.0) < DEBOUNCE_SECONDS:
            return False
        if len(self._told) >= MOST_QUEUES:
            self._told.clear()
        self._told[queue] = now
        return True

    def _notify(self, queue: str) -> None:
        """The job is stored; when nobody can be told of it, it is found by polling."""
        try:
            with connections[self._database].cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, queue])
        except (DatabaseError, InterfaceError):
            pass
