"""Batches in Redis: what a batch is there, and the scripts that know nothing of jobs but who is a member.

A batch and its jobs are not stored in one step, since a large one would keep the server busy for long. First come its
members, in pages, and with the last of them the batch itself. Until the job of a member is pushed, the batch waits for
it: after a crash in between, whoever dispatches the batch again pushes what is still awaited, and otherwise those
members are cancelled after a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast
from uuid import UUID

from ...jobs.flows import read_callbacks
from ...jobs.records import BatchRecord, ClosedBatch, NewBatch
from ...jobs.times import from_microseconds, microseconds
from ..base import KeepFor
from .cancelled import Waiting, pages
from .ends import Argument, in_groups
from .form import Places, Unreadable, job_arguments, read_id
from .store import RedisStore

VERSION = "1"
# The jobs of a batch are pushed right after it; nobody takes so long and is still alive.
AWAITED_SECONDS = 3600
# Of one call, so that none keeps others waiting for long; twice as many fit on the stack of Lua.
MEMBERS_PER_CALL = 2000
# Members are deleted at less cost.
MOST_PRUNED_MEMBERS = 10_000
# Each time somebody else has moved the batch between a look and its end; a sweep tries again.
CLOSE_TRIES = 10


class Stored(NamedTuple):
    """A batch as it was read, and its text then."""

    record: BatchRecord
    callbacks: str
    text: str
    moment: int


class RedisBatches:
    """The batches of one connection; ``now`` is microseconds as text, empty for the clock of Redis."""

    def __init__(self, connection: str, store: RedisStore) -> None:
        self._connection = connection
        self._store = store

    def create(self, batch: NewBatch, job_ids: Sequence[UUID], now: str) -> None:
        body = {
            "name": batch.name,
            "metadata": batch.metadata,
            "allow_failures": batch.allow_failures,
            "callbacks": batch.callbacks,
        }
        *parts, last = _pages(job_ids)
        for part in parts:
            self._store.run("batch_add", [], [now, batch.id.hex, "part", "", *part])
        self._store.run("batch_add", [], [now, batch.id.hex, "new", json.dumps(body), *last])

    def join(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        """Those of the first page keep it open; when it is cancelled meanwhile, they are too."""
        return all(self._store.run("batch_add", [], ["", batch_id.hex, "more", "", *page]) for page in _pages(job_ids))

    def awaited(self, batch_id: UUID, job_ids: Sequence[UUID]) -> set[UUID]:
        found: list[bytes] = []
        for page in _pages(job_ids):
            found += self._store.run("batch_awaited", [], [batch_id.hex, *page])
        return {UUID(name.decode()) for name in found}

    def get(self, batch_id: UUID) -> BatchRecord | None:
        stored = self._read(batch_id, "")
        return None if stored is None else stored.record

    def close(self, batch_id: UUID, now: str, channel: str) -> ClosedBatch | None:
        """The callbacks have the numbers of the batch, so that it ends only where these are still true."""
        for _ in range(CLOSE_TRIES):
            stored = self._read(batch_id, now)
            if stored is None or stored.record.finished_at is not None or stored.record.pending:
                return None
            record = replace(stored.record, finished_at=from_microseconds(stored.moment))
            then = read_callbacks(stored.callbacks).at_the_end(record)
            places = Places()
            follow = [argument for job in then for argument in job_arguments(job, places)]
            seen: list[Argument] = [batch_id.hex, stored.text, record.failed, record.cancelled]
            if self._store.run("batch_close", places, [stored.moment, channel, *seen, *follow]):
                return ClosedBatch(record, then)
        return None

    def cancel(self, batch_id: UUID, limit: int, keep_for: KeepFor, now: str) -> int:
        """Workers may take jobs between the look and the removal; then the look is repeated.

        A queue that is no text has no worker, who could have come upon the job.
        """
        removed, more = 0, 1
        while more and removed < limit:
            found = self._store.run("batch_cancel", [], [now, batch_id.hex, limit - removed])
            waiting = [Waiting(job_id, name, queue) for job_id, queue, name in in_groups(3, found)]
            more = 0
            for page in pages(self._store, waiting, keep_for):
                places = Places()
                members: list[Argument] = []
                for job, *kept in page:
                    members += [job.id, places[job.where.decode(errors="replace")], *kept]
                more += self._store.run("batch_remove", places, [now, batch_id.hex, *members])
            removed += more
        return removed

    def cancelled_and_open(self, limit: int, now: str) -> list[UUID]:
        """And cancel those whose jobs will not come any more."""
        found = self._store.run("batch_sweep", [], [now, microseconds(AWAITED_SECONDS), limit])
        return self._ids(self._store.keys.cancelled, found)

    def over(self, limit: int) -> list[UUID]:
        """Batches without a pending member that nobody has closed."""
        names = cast(list[bytes], self._store.client.zrange(self._store.keys.over, 0, limit - 1))
        return self._ids(self._store.keys.over, names)

    def prune(self, older_than: float, limit: int, now: str) -> int:
        return int(self._store.run("batch_prune", [], [now, microseconds(older_than), limit, MOST_PRUNED_MEMBERS]))

    def _ids(self, key: str, names: Iterable[bytes]) -> list[UUID]:
        """What is none goes: nobody else would take it from there, and batches behind it would wait."""
        found, strange = [], []
        for name in names:
            try:
                found.append(read_id(name))
            except ValueError:
                strange.append(name)
        if strange:
            self._store.client.zrem(key, *strange)
        return found

    def _read(self, batch_id: UUID, now: str) -> Stored | None:
        found = self._store.run("batch_get", [], [now, batch_id.hex])
        try:
            return _stored(batch_id, found, self._connection) if found else None
        except Unreadable:
            return None


def _stored(batch_id: UUID, found: Sequence[bytes], connection: str) -> Stored:
    """What ``batch_get`` returned; raises Unreadable."""
    moment, text, pending, failed, cancelled = found
    try:
        line, rest = text.decode().split("\n", 1)
        version, total, created_at, finished_at, cancelled_at, _ = line.split(" ")
        body = json.loads(rest)
        if version != VERSION:
            raise Unreadable(text)
        callbacks = body.pop("callbacks")
        record = BatchRecord(
            id=batch_id,
            connection=connection,
            total=int(total),
            pending=int(pending),
            failed=int(failed),
            cancelled=int(cancelled),
            created_at=from_microseconds(int(created_at)),
            finished_at=from_microseconds(int(finished_at)) if finished_at else None,
            cancelled_at=from_microseconds(int(cancelled_at)) if cancelled_at else None,
            **body,
        )
        return Stored(record, callbacks, text.decode(), int(moment))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreadable(text) from error


def _pages(job_ids: Sequence[UUID]) -> list[list[Argument]]:
    """At least one."""
    names: list[Argument] = [job_id.hex for job_id in job_ids]
    return [names[start : start + MEMBERS_PER_CALL] for start in range(0, len(names) or 1, MEMBERS_PER_CALL)]
