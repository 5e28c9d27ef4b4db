"""LISTEN on PostgreSQL: news of a ready job from another process, as a hint; nothing is correct because of it.

One thread for each process and database, with a connection of its own. Behind a pooler that shares backends between
transactions no news would arrive: so it first tells itself something, and ends when that is not heard.
"""

from __future__ import annotations

import importlib.util
import logging
import secrets
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("django_jobqueue")

CHANNEL = "django_jobqueue"
TEST_SECONDS = 2.0
# A stop is heard between two of these waits.
WAIT_SECONDS = 0.25
RECONNECT_SECONDS = 5.0
# What a stop waits for a server that has fallen silent.
LAST_SECONDS = 2.0


def can_listen(connection: BaseDatabaseWrapper) -> bool:
    """Whether it is PostgreSQL by psycopg 3; psycopg 2 would need a loop of its own, and polling serves it."""
    return connection.vendor == "postgresql" and importlib.util.find_spec("psycopg") is not None


class Listener:
    """Calls ``on_news`` with the name of a queue, from its own thread, when a job of it may be ready."""

    def __init__(self, database: str, on_news: Callable[[str], None]) -> None:
        self._database = database
        self._on_news = on_news
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="jobqueue-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that waits for a server that does not answer is left behind."""
        self._stopped.set()
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        connection = connections[self._database]
        is_tested = False
        while not self._stopped.is_set():
            try:
                connection.ensure_connection()
                raw: Any = connection.connection
                raw.execute(f"LISTEN {CHANNEL}")
                if not is_tested and not self._hears_itself(raw):
                    logger.info(
                        "NOTIFY does not arrive from the database %r; jobs are found by polling.", self._database
                    )
                    return
                is_tested = True
                self._listen(raw)
                raw.execute(f"UNLISTEN {CHANNEL}")
            except Exception as error:
                # psycopg's own errors too, since the raw connection is used; nothing here may matter to anybody.
                logger.debug("Listening for jobs was interrupted: %s", error)
                connection.close()
                self._stopped.wait(RECONNECT_SECONDS)
        connection.close()

    def _hears_itself(self, raw: Any) -> bool:
        """Whether a NOTIFY of another connection arrives here."""
        word = secrets.token_hex(8)
        other = connections[self._database].copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, word])
        finally:
            other.close()
        return any(news.payload == word for news in raw.notifies(timeout=TEST_SECONDS))

    def _listen(self, raw: Any) -> None:
        while not self._stopped.is_set():
            for news in raw.notifies(timeout=WAIT_SECONDS):
                self._on_news(news.payload)
                if self._stopped.is_set():
                    return
