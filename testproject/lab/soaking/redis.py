"""A Redis of the soak's own, with an append-only file; dead letters are in a database of the soak's own."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, cast

import redis
from django.db.backends.base.base import BaseDatabaseWrapper
from redis.exceptions import RedisError

from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.drivers.redis.form import Keys, read_body, read_form

from .. import servers
from ..redis_connection import server_version
from .cases import Content, Waiting
from .stores import ALL_AT_ONCE, OwnDatabase, Unsupported, key_of
from .watching import Watching

PREFIX = "soak:"
WAIT_SECONDS = 5


class WatchedRedisDriver(Watching, RedisDriver):
    """Redis'."""


class RedisQueue(OwnDatabase):
    """``rows`` is where dead letters are. Only Redis is disturbed."""

    joins_transactions: ClassVar[bool] = False

    def __init__(self, rows: OwnDatabase) -> None:
        if not servers.Redis.is_installed():
            raise Unsupported("the programs of a Redis server are not installed here")
        self.server = servers.Redis()
        self.rows = rows
        self.settings = rows.settings
        self.stops_concern_all = rows.stops_concern_all  # type: ignore[misc]
        self.cache = self.server.settings()
        self._keys = Keys(PREFIX)
        self._client = redis.Redis(port=self.server.port, socket_timeout=WAIT_SECONDS)

    def create(self) -> None:
        self.server.prepare()
        self.server.start()
        self.rows.create()

    def make_effect_table(self) -> None:
        self.rows.make_effect_table()

    def remove(self) -> None:
        self.close()
        self.server.remove()
        self.rows.remove()

    def own_settings(self, base: dict[str, Any]) -> dict[str, Any]:
        return base

    def make(self) -> None:
        return

    def drop(self) -> None:
        return

    def connect(self, **changes: Any) -> BaseDatabaseWrapper:
        return self.rows.connect(**changes)

    def begin_long_transaction(self, cursor: Any) -> None:
        self.rows.begin_long_transaction(cursor)

    def close(self) -> None:
        self._client.connection_pool.disconnect()
        self.rows.close()

    def left(self) -> int | None:
        try:
            return sum(map(int, cast(list[bytes], self._client.hvals(self._keys.queues))))
        except RedisError:
            return None

    def content(self) -> Content:
        jobs = cast(dict[bytes, bytes], self._client.hgetall(self._keys.jobs))
        bodies = cast(dict[bytes, bytes], self._client.hgetall(self._keys.bodies))
        waiting = []
        for job_id, text in jobs.items():
            form = read_form(job_id, text)
            waiting.append(Waiting(key_of(read_body(bodies[job_id]).payload, form.format), form.state))
        rows = self.rows.content()
        return Content(waiting=waiting, dead_letters=rows.dead_letters, effects=rows.effects)

    def version(self) -> str:
        return f"{server_version(self._client)}, dead letters in {self.rows.version()}"

    def cut(self, random: Random) -> int:
        """Of ordinary and subscribed connections, but not our own."""
        try:
            own = self._client.client_id()
            found = [int(client["id"]) for client in cast(list[dict[str, str]], self._client.client_list())]
            ids = [number for number in found if number != own]
            chosen = ids if random.random() < ALL_AT_ONCE else ids and [random.choice(ids)]
            return sum(int(cast(int, self._client.client_kill_filter(_id=str(number)))) for number in chosen)
        except RedisError:
            return 0
