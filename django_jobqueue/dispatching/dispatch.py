"""From a call to a stored job: everything is checked and encoded before the first statement.

A job dispatched in a transaction exists exactly when that commits. A store that cannot join the caller's
transaction is written after the commit of the database in AFTER_COMMIT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings as django_settings
from django.db import connections as databases
from django.db import transaction
from django.utils.timezone import is_naive, make_aware

from ..conf import Settings, get_settings
from ..drivers import Driver, connections
from ..exceptions import InvalidOption
from ..jobs.chunks import Chunks, job_bytes
from ..jobs.definition import Definition, check_priority
from ..jobs.ids import new_job_id
from ..jobs.names import check_queue
from ..jobs.payloads import FORMAT, encode, encode_metadata, secret_paths
from ..jobs.records import NewJob
from ..jobs.times import seconds
from ..signals import job_dispatched
from .after_commit import push_after_commit
from .lost import WaitingBatch


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What a dispatch did. ``stored`` is False only when the job was there already."""

    id: UUID
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``using`` was told; None means: as the definition and the settings say."""

    delay: float | None = None
    available_at: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    connection: str | None = None
    metadata: Mapping[str, Any] | None = None
    after_commit: bool | None = None

    def changed(self, given: Mapping[str, Any]) -> Options:
        """A copy with the given options, checked; raises InvalidOption."""
        checked = {}
        for option, value in given.items():
            check = _CHECKS.get(option)
            if check is None:
                raise InvalidOption(f"using() has no option {option!r}; it takes {', '.join(_CHECKS)}.")
            checked[option] = None if value is None else check(value)
        result = replace(self, **checked)
        if result.delay is not None and result.available_at is not None:
            raise InvalidOption("delay and available_at say the same thing twice; give one of them.")
        return result


class Prepared(NamedTuple):
    """A job ready to be stored, and the connection it goes to."""

    connection: str
    job: NewJob
    after_commit: bool = True


def prepare(
    definition: Definition,
    options: Options,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    flow: str | None = None,
) -> Prepared:
    """Check and encode a call, as its arguments are now; raises InvalidPayload. Nothing is stored yet.

    ``flow`` is the text of what follows the job.
    """
    settings = get_settings()
    definition.bind(args, kwargs)
    names = definition.parameter_names
    queue = definition.queue if options.queue is None else options.queue
    payload = encode(args, kwargs, names, settings.payload_limit)
    secrets = secret_paths(args, kwargs, names, _secrecy(definition, settings))
    job = NewJob(
        id=new_job_id(),
        name=definition.name,
        queue=queue,
        payload=payload,
        format=FORMAT,
        rank=-(definition.priority if options.priority is None else options.priority),
        max_attempts=definition.max_attempts,
        retry_for=definition.retry_until,
        delay=options.delay,
        available_at=options.available_at,
        metadata=encode_metadata(options.metadata, settings.payload_limit) if options.metadata else "",
        masked=json.dumps(secrets) if secrets else "",
        flow=flow,
    )
    connection = options.connection or settings.connection_of(queue)
    if definition.atomic:
        _check_joinable(definition.name, connection)
    return Prepared(connection, job, after_commit=options.after_commit is not False)


def _check_joinable(name: str, connection: str) -> None:
    if not connections[connection].supports_transactions:
        raise InvalidOption(
            f"The job {name!r} is atomic, and the connection {connection!r} is no database that its transaction could "
            "include; dispatch it with using(connection=...) to one that is, or drop atomic=True."
        )


def store(prepared: Prepared) -> Dispatched:
    """Store one job, now or after the commit that it waits for."""
    driver = connections[prepared.connection]
    alias = commit_awaited(driver) if prepared.after_commit else None
    if alias is None:
        return Dispatched(prepared.job.id, bool(_push(driver, [prepared.job])))
    push_after_commit(alias, driver.alias, [prepared.job], partial(_push, driver, [prepared.job]))
    return Dispatched(prepared.job.id, stored=True)


def store_many(prepared: Iterable[Prepared], batch: WaitingBatch | None = None) -> list[UUID]:
    """Store jobs in bounded chunks, all or none where the store has transactions; return their ids in order.

    ``batch`` is the one of which they are members, where it waits for a commit too.
    """
    ids: list[UUID] = []
    buffers: dict[tuple[str, bool], _Buffer] = {}
    with ExitStack() as transactions:
        for item in prepared:
            ids.append(item.job.id)
            key = item.connection, item.after_commit
            buffer = buffers.get(key)
            if buffer is None:
                buffer = buffers[key] = _Buffer(connections[item.connection], batch, after_commit=item.after_commit)
                if buffer.streams:
                    transactions.enter_context(transaction.atomic(using=buffer.driver.database))
            buffer.add(item.job)
        for buffer in buffers.values():
            buffer.finish()
    return ids


class _Buffer:
    """The jobs of one connection on their way: in a transaction chunk by chunk, else when all were checked."""

    def __init__(self, driver: Driver, batch: WaitingBatch | None, *, after_commit: bool) -> None:
        self.driver = driver
        self._batch = batch
        self._awaited = commit_awaited(driver) if after_commit else None
        self.streams = driver.supports_transactions and self._awaited is None
        self._full: list[list[NewJob]] = []
        self._chunks: Chunks[NewJob] = Chunks(job_bytes)

    def add(self, job: NewJob) -> None:
        if full := self._chunks.add(job):
            self._full.append(full)
            if self.streams:
                self._store()

    def finish(self) -> None:
        if rest := self._chunks.rest():
            self._full.append(rest)
        self._store()

    def _store(self) -> None:
        for chunk in self._full:
            if self._awaited is None:
                _push(self.driver, chunk)
            else:
                push = partial(_push, self.driver, chunk)
                push_after_commit(self._awaited, self.driver.alias, chunk, push, self._batch)
        self._full = []


def commit_awaited(driver: Driver) -> str | None:
    """The database whose commit a dispatch must wait for, None when it can be stored at once."""
    alias = get_settings().after_commit
    own = driver.database if driver.supports_transactions else None
    if own is not None and (own == alias or databases[own].in_atomic_block):
        return None
    return alias if databases[alias].in_atomic_block else None


def _push(driver: Driver, jobs: Sequence[NewJob]) -> set[UUID]:
    stored = driver.push(jobs)
    if job_dispatched.receivers:
        announce(driver, [job for job in jobs if job.id in stored])
    return stored


def announce(driver: Driver, jobs: Iterable[NewJob]) -> None:
    """Say that jobs were stored."""
    for job in jobs:
        driver.send(job_dispatched, id=job.id, name=job.name, queue=job.queue)


def _secrecy(definition: Definition, settings: Settings) -> Callable[[str], bool]:
    if not definition.sensitive:
        return settings.is_secret
    return lambda name: name in definition.sensitive or settings.is_secret(name)


def _check_delay(value: object) -> float:
    return seconds("delay", value)


def _check_available_at(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidOption(f"available_at must be a datetime, not {value!r}; for seconds from now use delay.")
    if not is_naive(value):
        return value
    if django_settings.USE_TZ:
        raise InvalidOption(
            f"available_at {value!r} has no time zone, and USE_TZ is on; use django.utils.timezone.make_aware()."
        )
    return make_aware(value)


def _check_connection(value: object) -> str:
    configured = get_settings().connections
    if not isinstance(value, str) or value not in configured:
        raise InvalidOption(f'There is no connection {value!r}; JOBQUEUE["CONNECTIONS"] has {", ".join(configured)}.')
    return value


def _check_after_commit(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"after_commit must be True or False, not {value!r}.")
    return value


def _check_metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"metadata must be a dictionary, not {value!r}.")
    return dict(value)


NO_OPTIONS = Options()

_CHECKS: dict[str, Callable[[object], Any]] = {
    "delay": _check_delay,
    "available_at": _check_available_at,
    "queue": check_queue,
    "priority": check_priority,
    "connection": _check_connection,
    "metadata": _check_metadata,
    "after_commit": _check_after_commit,
}
