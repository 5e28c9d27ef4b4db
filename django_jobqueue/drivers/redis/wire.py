"""The way of a script to the server and back, as short as it can be.

For each command redis-py takes a connection from its pool, tests it, and packs every argument by itself: more Python
than all the rest of a dispatch, and with cold caches a good part of the time until a job starts. Here one connection
is kept for the next call, and what is the same in every call is packed once. Whatever goes wrong with it is left to
redis-py, by the ordinary way and its rules of trying again: every script may be sent twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from inspect import signature
from typing import Any

import redis
from redis import Redis
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from .ends import Argument

# Older ones want to be told for what command.
_TAKES_NAME = tuple(map(int, redis.__version__.split(".")[:2])) < (5, 3)
KEPT = "kept"
LEAST_POOL = 10


class Wire:
    """``keys`` are the first of every call."""

    def __init__(self, client: Redis, keys: Sequence[str]) -> None:
        self._client = client
        self._pool = client.connection_pool
        self._keys = keys
        self._packed_keys = b"".join(packed(keys))
        # A pool of few was counted out by somebody, for those who would then lack one.
        self._keeps = self._pool.max_connections >= LEAST_POOL
        # One at most; beside its process, since forks share no socket. A dictionary, since each step of it is one for
        # all threads, and leaves a fork no lock that is never released.
        self._kept: dict[str, tuple[int, Any]] = {}

    def call(self, digest: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script that the server knows; raises NoScriptError when it does not."""
        command = self._pack(digest, keys, arguments)
        connection = None
        try:
            connection = self._take()
            connection.send_packed_command([command])
            answer = connection.read_response()
        except ResponseError as error:
            if connection is not None and _is_of_replica(error):
                # After a fail-over behind one address: who connects anew finds the new master.
                connection.disconnect()
                self._pool.release(connection)
                close_idle(self._pool)
            elif connection is not None:
                self._put_back(connection)
            raise
        except BaseException as error:  # also what was raised from outside: the next call must not take this answer
            if connection is None:
                raise
            connection.disconnect()
            self._pool.release(connection)
            if not isinstance(error, RedisError):
                raise
        else:
            self._put_back(connection)
            return answer
        # The connection was gone.
        return self._client.evalsha(digest, self._count(keys), *self._keys, *keys, *arguments)

    def teach(self, text: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script by its text, by which the server knows it from then on."""
        return self._client.eval(text, self._count(keys), *self._keys, *keys, *arguments)

    def close(self) -> None:
        """Give back what is kept."""
        kept = self._kept.pop(KEPT, None)
        if kept is not None and kept[0] == os.getpid():
            self._pool.release(kept[1])

    def _count(self, keys: Sequence[str]) -> int:
        return len(self._keys) + len(keys)

    def _pack(self, digest: str, keys: Sequence[str], arguments: Sequence[Argument]) -> bytes:
        count = self._count(keys)
        head = b"*%d\r\n" % (3 + count + len(arguments))
        command = packed(["EVALSHA", digest, count])
        return b"".join([head, *command, self._packed_keys, *packed([*keys, *arguments])])

    def _take(self) -> Any:
        """The one that is kept, or another; raises what connecting raises."""
        kept = self._kept.pop(KEPT, None)
        if kept is not None and kept[0] == os.getpid():
            connection = kept[1]
            if self._pool.owns_connection(connection):
                return connection
            self._pool.release(connection)  # to a master that Sentinel has replaced, and closed by that
        return self._pool.get_connection("EVALSHA") if _TAKES_NAME else self._pool.get_connection()

    def _put_back(self, connection: Any) -> None:
        kept = os.getpid(), connection
        if not self._keeps or self._kept.setdefault(KEPT, kept) is not kept:
            self._pool.release(connection)


def _is_of_replica(error: ResponseError) -> bool:
    """Redis 6.2 has what a script was refused in the middle of its text."""
    return isinstance(error, ReadOnlyError) or "-READONLY " in str(error)


def close_idle(pool: Any) -> None:
    """Close the sockets that nobody uses just now.

    The blocking pools of redis-py before its version 7 close all or none: those in the middle of a call must stay.
    """
    if "inuse_connections" in signature(pool.disconnect).parameters:
        pool.disconnect(inuse_connections=False)


def packed(values: Iterable[Argument]) -> list[bytes]:
    """Each argument as the protocol has it."""
    texts = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    return [b"$%d\r\n%b\r\n" % (len(text), text) for text in texts]
