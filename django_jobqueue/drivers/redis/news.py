"""Hearing from other processes, through Redis, that a job is ready: a hint, as NOTIFY is on PostgreSQL.

One subscription for each process and connection, on a socket of its own. No thread waits for it: a worker that has
nothing to do watches the socket itself, since the way from another thread would be a good part of the time until a job
starts. Nothing here waits for the server but connecting. It is asked for a sign of life, since a socket whose other end
was cut off says nothing for ever.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from redis.client import PubSub

logger = logging.getLogger("django_jobqueue")

# A sign of life is asked for, and waited for, so long.
SILENCE_SECONDS = 5.0
RECONNECT_SECONDS = 5.0
READ_BYTES = 65536
# The longest name of a queue that is waited for; names are much shorter.
MOST_BYTES = 10_000
PING = b"*1\r\n$4\r\nPING\r\n"


class NewsEar:
    """Calls ``on_news`` with the name of a queue when a job of it may be ready, in the thread that listens."""

    def __init__(self, connect: Callable[[], PubSub], channel: str, on_news: Callable[[str], None]) -> None:
        self._connect = connect
        self._channel = channel
        self._on_news = on_news
        # A message up to its text, in either version of the protocol.
        name = channel.encode()
        self._head = re.compile(rb"\$7\r\nmessage\r\n\$%d\r\n%s\r\n\$(\d+)\r\n" % (len(name), re.escape(name)))
        self._longest_head = len(name) + 50
        self._listening = Lock()
        # Each step of a dictionary is one for all threads.
        self._turned_away: dict[Callable[[], None], None] = {}
        self._news: PubSub | None = None
        self._socket: socket.socket | None = None
        self._rest = b""
        self._open_at = self._heard_at = 0.0
        self._asked_at: float | None = None

    # In the thread that waits

    def begin(self, on_free: Callable[[], None] | None = None) -> int | None:
        """Listen from here on to ``end``; return the file descriptor to watch, None when there is nothing to listen to.

        That is so too while another thread listens, which tells all, and calls ``on_free`` at its end.
        """
        if on_free is not None:
            self._turned_away[on_free] = None  # before the try: whoever ends meanwhile must find it
        if not self._listening.acquire(blocking=False):
            return None
        if on_free is not None:
            self._turned_away.pop(on_free, None)
        try:
            if self._socket is None and time.monotonic() >= self._open_at:
                self._open()
            self._catch_up()
        except BaseException:
            self._listening.release()
            raise
        if self._socket is not None:
            return self._socket.fileno()
        self._listening.release()
        return None

    def hear(self) -> None:
        """What is watched has something to say."""
        with suppress(OSError):  # it is lost at the next beginning
            self._receive()

    def end(self) -> None:
        self._listening.release()
        # All, since some have gone on to a job meanwhile; and no more, since one that is turned away again comes back.
        for _ in range(len(self._turned_away)):
            with suppress(KeyError):
                self._turned_away.popitem()[0]()

    # In any thread

    def drain(self) -> None:
        """While nobody waits: what comes must not heap up in the server."""
        if self._listening.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self.end()

    def close(self) -> None:
        with self._listening:
            self._close()

    # Details

    def _open(self) -> None:
        news = None
        try:
            news = self._connect()
            news.subscribe(self._channel)
            # There is no public name for it. From here on it is read here only: what redis-py reads costs more than
            # all else that happens between the news and the job.
            found: socket.socket = news.connection._sock  # type: ignore[attr-defined]
            found.setblocking(False)
        except Exception as error:  # whatever it is, the worker polls
            if news is not None:
                news.close()
            self._lose(error)
        else:
            self._news, self._socket, self._rest = news, found, b""
            self._heard_at, self._asked_at = time.monotonic(), None

    def _catch_up(self) -> None:
        """Hear what came while nobody listened, and see whether the server is there."""
        if self._socket is None:
            return
        try:
            while self._receive():
                pass
            now = time.monotonic()
            if self._asked_at is None and now - self._heard_at > SILENCE_SECONDS:
                self._asked_at = now
                self._socket.sendall(PING)
            elif self._asked_at is not None and now - self._asked_at > SILENCE_SECONDS:
                raise ConnectionError("the server gave no sign of life")
        except OSError as error:
            self._lose(error)

    def _receive(self) -> bool:
        """Take what has come; return whether there was anything. Raises OSError where the connection has ended."""
        if self._socket is None:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._rest += data
        self._read()
        self._heard_at, self._asked_at = time.monotonic(), None
        return True

    def _read(self) -> None:
        """Tell of each message that has come as a whole; whatever else came is a sign of life and no more."""
        text, at = self._rest, 0
        while (found := self._head.search(text, at)) is not None:
            begin, at = found.end(), found.end() + int(found[1])
            if at > len(text):
                self._rest = text[found.start() :] if at - begin < MOST_BYTES else b""
                return
            self._on_news(text[begin:at].decode(errors="replace"))
        self._rest = text[max(at, len(text) - self._longest_head) :]  # where another may have begun

    def _lose(self, error: Exception) -> None:
        """Refused by an ACL, down, or silent: jobs are found by polling."""
        logger.debug("Listening for jobs was interrupted: %s", error)
        self._close()
        self._open_at = time.monotonic() + RECONNECT_SECONDS

    def _close(self) -> None:
        if self._news is not None:
            self._news.close()
        self._news = self._socket = None
