"""Hearing from other processes, through Redis, that a job is ready: a hint, as NOTIFY is on PostgreSQL.

One thread for each process and connection, subscribed on a socket of its own. It never waits for long, so that it
hears a stop; and it asks the server for a sign of life, since a socket whose other end was cut off says nothing for
ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from redis.client import PubSub
from redis.exceptions import ConnectionError, RedisError

logger = logging.getLogger("django_jobqueue")

# A stop is heard between two of these waits.
WAIT_SECONDS = 0.25
# A sign of life is asked for, and waited for, so long.
SILENCE_SECONDS = 5.0
RECONNECT_SECONDS = 5.0


class NewsListener:
    """Calls ``on_news`` with the name of a queue, from its own thread, when a job of it may be ready."""

    def __init__(self, connect: Callable[[], PubSub], channel: str, on_news: Callable[[str], None]) -> None:
        self._connect = connect
        self._channel = channel
        self._on_news = on_news
        self._stopped = Event()
        self.subscribed = Event()
        self._thread = Thread(target=self._run, name="jobqueue-redis-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._connect() as news:
                    news.subscribe(self._channel)
                    self._listen(news)
            except (RedisError, OSError) as error:
                # Refused by an ACL, down, or silent: jobs are found by polling.
                logger.debug("Listening for jobs was interrupted: %s", error)
                self.subscribed.clear()
                self._stopped.wait(RECONNECT_SECONDS)

    def _listen(self, news: PubSub) -> None:
        heard_at, asked_at = time.monotonic(), None
        while not self._stopped.is_set():
            message = news.get_message(timeout=WAIT_SECONDS)
            now = time.monotonic()
            if message is not None:
                heard_at, asked_at = now, None
                self._take(message)
            elif asked_at is None and now - heard_at > SILENCE_SECONDS:
                asked_at = now
                news.ping()
            elif asked_at is not None and now - asked_at > SILENCE_SECONDS:
                raise ConnectionError("the server gave no sign of life")

    def _take(self, message: dict[str, object]) -> None:
        data = message["data"]
        if message["type"] == "subscribe":
            self.subscribed.set()
        elif message["type"] == "message" and isinstance(data, bytes):
            self._on_news(data.decode(errors="replace"))
