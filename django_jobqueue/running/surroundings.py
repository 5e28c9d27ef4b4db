"""A handler sees clean state, and what it leaves behind does not reach the next one.

Each job runs in an empty ``contextvars`` context: language, time zone, decimal precision and whatever else lives
there begin with their defaults and end with the job. Database connections are the thread's, so they are put right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

logger = logging.getLogger("django_jobqueue")


class Surroundings:
    """The database connections of a thread, as they are before its next jobs.

    Those that are in a transaction already, as in a TestCase, are the caller's, and left alone.
    """

    def __init__(self) -> None:
        self._connections = [connection for connection in connections.all() if not connection.in_atomic_block]

    def run_clean(self, work: Callable[[], T]) -> T:
        """Call ``work`` in a context of its own; transactions that it leaves open are rolled back, and logged."""
        try:
            return Context().run(work)
        finally:
            for connection in self._connections:
                if connection.connection is not None:
                    _put_right(connection)


def refresh_connections() -> None:
    """Before a wait or a batch: close what is unusable or has reached a positive CONN_MAX_AGE.

    An age of 0 means one request in Django, and would mean one poll here; such connections are kept.
    """
    for connection in _opened():
        if connection.in_atomic_block:
            continue
        connection.queries_log.clear()  # what DEBUG keeps of our own looks
        ends = connection.close_at if connection.settings_dict["CONN_MAX_AGE"] else None
        if ends is not None and time.monotonic() >= ends:
            connection.close()


def close_connections() -> None:
    """At the end of a thread."""
    for connection in _opened():
        if not connection.in_atomic_block:
            connection.close()


def _opened() -> list[BaseDatabaseWrapper]:
    return [connection for connection in connections.all(initialized_only=True) if connection.connection is not None]


def _put_right(connection: BaseDatabaseWrapper) -> None:
    if connection.queries_log:
        connection.queries_log.clear()
    if connection.in_atomic_block:
        logger.warning(
            "A job left a transaction on %r open; it was rolled back. Use transaction.atomic() as a context manager.",
            connection.alias,
        )
        connection.close()
        connection.connect()
    elif connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        logger.warning(
            "A job left autocommit of %r switched; what it had not committed was rolled back.", connection.alias
        )
        connection.close()
    elif connection.errors_occurred:
        if connection.is_usable():
            connection.errors_occurred = False
        else:
            connection.close()
