"""One connection's keys on its server: scripts are run here, and what is there is read; nothing is decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from django_redis import get_redis_connection
from redis import Redis

from ...jobs.records import JobRecord
from .ends import Argument, in_groups
from .form import Form, Keys, Unreadable, job_record, read_form
from .options import RedisOptions
from .scripts import SCRIPTS
from .wire import Wire, close_idle

# Of one call, so that none keeps others waiting for long.
PAGE = 500
QUEUES_PER_CALL = 100
# Most queues have one; each is a search.
RANKS_PER_CALL = 500


class RedisStore:
    def __init__(self, alias: str, options: RedisOptions) -> None:
        self.keys = Keys(options.prefix)
        self._alias = alias
        self._cache = options.cache
        self._made_client: Redis | None = None
        self._made_wire: Wire | None = None

    @property
    def client(self) -> Redis:
        """Of django-redis, for all threads; it connects when it is used."""
        if self._made_client is None:
            self._made_client = get_redis_connection(self._cache)
        return self._made_client

    @property
    def _wire(self) -> Wire:
        if self._made_wire is None:
            self._made_wire = Wire(self.client, self.keys.common)
        return self._made_wire

    def run(self, name: str, queues: Iterable[str], arguments: Sequence[Argument], *keys: str) -> Any:
        """Run a script that may touch these queues, and further keys."""
        return SCRIPTS[name].run(self._wire, [*self.keys.of(queues), *keys], arguments)

    def close(self) -> None:
        """Sockets that nobody uses just now."""
        if self._made_wire is not None:
            self._made_wire.close()
        if self._made_client is not None:
            close_idle(self._made_client.connection_pool)

    def queues(self) -> list[str]:
        return sorted(name.decode(errors="replace") for name in cast(list[bytes], self.client.hkeys(self.keys.queues)))

    def parts(self, job_id: UUID) -> list[bytes]:
        """Form, body and errors of a job as of one moment; empty where there are none.

        By a script: a transaction is refused by a server that is full.
        """
        found: list[bytes] = self.run("get", [], [job_id.hex])
        return found

    def waiting(self, job_ids: Sequence[bytes]) -> dict[bytes, JobRecord]:
        """Jobs by their ids, without their errors, and without what cannot be read."""
        found = {}
        texts, bodies = (self.client.hmget(key, list(job_ids)) for key in (self.keys.jobs, self.keys.bodies))
        for job_id, *parts in zip(job_ids, texts, bodies, strict=True):
            with suppress(Unreadable):
                found[job_id] = job_record(job_id, [*parts, b""], self._alias)
        return found

    def records(self, script: str, queue: str, limit: int) -> list[JobRecord]:
        """Jobs of a queue without what cannot be read, which a reserve sets aside."""
        records = []
        for job_id, *parts in in_groups(4, self.run(script, [queue], [limit])):
            try:
                records.append(job_record(job_id, parts, self._alias))
            except Unreadable:
                continue
        return records

    def reserved(self) -> Iterator[Form]:
        """All reserved jobs, page by page; one may come twice. What cannot be read is left to a rescue."""
        cursor = -1
        while cursor:
            cursor, pairs = self.client.zscan(self.keys.reserved, max(cursor, 0), count=PAGE)
            ids = [cast(bytes, member)[:32] for member, _score in pairs]  # and the queue
            texts = self.client.hmget(self.keys.jobs, ids) if ids else []
            for job_id, text in zip(ids, texts, strict=True):
                try:
                    yield read_form(job_id, cast(bytes | None, text) or b"")
                except Unreadable:
                    continue

    def counts(self, now: str) -> dict[str, dict[str, Any]]:
        """By queue the numbers of a QueueSize; the age of the oldest job may take several calls."""
        found: dict[str, dict[str, Any]] = {}
        todo = [(name, "") for name in self.queues()]
        while todo:
            page, todo = todo[:QUEUES_PER_CALL], todo[QUEUES_PER_CALL:]
            arguments = [argument for pair in page for argument in pair]
            moment, *numbers = self.run("sizes", [name for name, _ in page], [now, RANKS_PER_CALL, *arguments])
            for (queue, before), (total, ready, scheduled, oldest, rank) in zip(
                page, in_groups(5, numbers), strict=True
            ):
                if total and not before:
                    reserved = total - ready - scheduled
                    found[queue] = {"ready": ready, "scheduled": scheduled, "reserved": reserved, "oldest": None}
                if oldest and queue in found:
                    waits = max(0, int(moment) - int(oldest)) / 1_000_000
                    found[queue]["oldest"] = max(waits, found[queue]["oldest"] or 0.0)
                if rank:
                    todo.append((queue, rank.decode()))
        return found
