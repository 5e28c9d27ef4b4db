"""Batches: calls and chains of which one knows when all have ended, and what to dispatch then.

All are bound and encoded before the first statement. A batch and its jobs are stored in one transaction, where the
store has any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from ..conf import DEFAULT, get_settings
from ..drivers import Driver, connections
from ..exceptions import InvalidConnection, InvalidOption, JobQueueError
from ..jobs.definition import define
from ..jobs.flows import (
    MASKED_ARGUMENTS,
    NO_LIMIT,
    RELAY_ATTEMPTS,
    SPREAD,
    Callbacks,
    Flow,
    Step,
    read_callbacks,
    read_step,
    write_step,
)
from ..jobs.ids import new_job_id
from ..jobs.names import MAX_JOB_NAME
from ..jobs.payloads import FORMAT, encode, encode_metadata
from ..jobs.records import ClosedBatch, NewBatch, NewJob
from ..jobs.registry import registry
from ..signals import batch_finished
from .after_commit import push_after_commit
from .chains import Chain, Composite, checked, step_of
from .dispatch import Prepared, announce, commit_awaited, store_many
from .handler import Call
from .lost import WaitingBatch


@dataclass(frozen=True, slots=True)
class DispatchedBatch:
    """What the dispatch of a batch did: its id, and those of its jobs in order, of a chain that of its first step."""

    id: UUID
    ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Batch(Composite):
    """Jobs that are told apart from others, and their end; made by ``batch()``.

    PREVIOUS in the arguments of a callback stands for the batch's numbers: a dictionary with ``id``, ``name``,
    ``total``, ``done``, ``failed`` and ``cancelled``.
    """

    calls: tuple[Call | Chain, ...]
    name: str = ""
    metadata: str = ""
    allow_failures: bool = False
    after_success: Call | None = None
    after_failure: Call | None = None
    after_all: Call | None = None

    def then(self, call: Call) -> Batch:
        """The same batch with a job that is dispatched when all have ended with success.

        With ``allow_failures`` some may have failed.
        """
        return replace(self, after_success=checked(call))

    def catch(self, call: Call) -> Batch:
        """The same batch with a job that is dispatched when all have ended, and one or more have failed."""
        return replace(self, after_failure=checked(call))

    def finally_(self, call: Call) -> Batch:
        """The same batch with a job that is dispatched when all have ended, however they did."""
        return replace(self, after_all=checked(call))

    def dispatch(self) -> DispatchedBatch:
        """Store the batch and its jobs, all or none; raises for any of them before anything is stored."""
        new, prepared = self._prepare()
        driver = _driver_of(prepared)
        _store(driver, new, prepared)
        return DispatchedBatch(new.id, tuple(item.job.id for item in prepared))

    async def adispatch(self) -> DispatchedBatch:
        """``dispatch`` for async code, on the thread whose transaction sync code sees."""
        return await sync_to_async(self.dispatch)()

    def as_step(self) -> tuple[Prepared, UUID]:
        new, prepared = self._prepare()
        members = [write_step(Step(item.connection, item.job)) for item in prepared]
        text = json.dumps({**asdict(new), "id": new.id.hex, "members": members})
        first = prepared[0].job if prepared else None
        job = NewJob(
            id=new.id,  # so that whoever looks for the batch before its turn is over finds this job
            name=SPREAD,
            queue="default" if first is None else first.queue,
            payload=encode([text, None], {}, (), NO_LIMIT),
            format=FORMAT,
            rank=0 if first is None else first.rank,
            max_attempts=RELAY_ATTEMPTS,
            masked=MASKED_ARGUMENTS,
        )
        return Prepared(_driver_of(prepared).alias, job, _waits(prepared)), new.id

    def _prepare(self) -> tuple[NewBatch, list[Prepared]]:
        batch_id = new_job_id()
        then, catch, finally_ = (
            None if call is None else step_of(call) for call in (self.after_success, self.after_failure, self.after_all)
        )
        new = NewBatch(
            id=batch_id,
            name=self.name,
            metadata=self.metadata,
            allow_failures=self.allow_failures,
            callbacks=Callbacks(then, catch, finally_).write(),
        )
        return new, _prepared(self.calls, batch_id)


def batch(
    calls: Iterable[Call | Chain] = (),
    *,
    name: str = "",
    metadata: Mapping[str, Any] | None = None,
    allow_failures: bool = False,
) -> Batch:
    """Calls, ``handler.s(...)``, and chains that belong together; all of one connection.

    ``name`` and ``metadata`` are for people. With ``allow_failures`` what ``then`` was given runs after failures too.
    """
    if type(name) is not str or len(name) > MAX_JOB_NAME or not name.isprintable():
        raise InvalidOption(f"The name of a batch must be printable text of at most {MAX_JOB_NAME}, not {name!r:.300}.")
    if not isinstance(allow_failures, bool):
        raise InvalidOption(f"allow_failures must be True or False, not {allow_failures!r}.")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidOption(f"metadata must be a dictionary, not {metadata!r}.")
    text = encode_metadata(metadata or {}, get_settings().payload_limit) if metadata else ""
    return Batch(_members(calls), name, text, allow_failures)


def spread(batch: str, rest: str | None) -> None:
    """Our own job for a batch that is a step of a chain, whose ``rest`` goes on at the batch's end.

    A second run, after a crash, finds the batch there, and with it its jobs, or those that the store still awaits.
    """
    body = json.loads(batch)
    members = [Prepared(*read_step(step)) for step in body.pop("members")]
    body["id"] = UUID(body["id"])
    body["callbacks"] = replace(read_callbacks(body["callbacks"]), chain=rest).write()
    driver = _driver_of(members)
    if driver.get_batch(body["id"]) is None:
        _store(driver, NewBatch(**body), members)
    else:
        awaited = driver.awaited_members(body["id"], [item.job.id for item in members])
        store_many(item for item in members if item.job.id in awaited)


registry.register(define(spread, {"name": SPREAD, "keep_result": 0}))


def add_to_batch(connection: str, batch_id: UUID, name: str, calls: Iterable[Call | Chain]) -> list[UUID]:
    """Store more jobs of a batch that has not ended; return their ids in order."""
    driver = connections[connection]
    prepared = _prepared(_members(calls), batch_id)
    for item in prepared:
        if item.connection != connection:
            raise InvalidOption(
                f"The job {item.job.name!r} is for the connection {item.connection!r}, and the batch is on "
                f"{connection!r}; dispatch it there: using(connection=…)."
            )
    join = partial(_join, driver, batch_id, [item.job.id for item in prepared])
    _store_members(driver, join, prepared, WaitingBatch(batch_id, name, len(prepared)))
    return [item.job.id for item in prepared]


def close(driver: Driver, batch_id: UUID, now: datetime | None = None) -> None:
    """End a batch when no member is pending."""
    closed = driver.close_batch(batch_id, now=now)
    if closed is not None:
        announce_closed(driver, closed)


def announce_closed(driver: Driver, closed: ClosedBatch) -> None:
    """Say that a batch has ended, and which jobs were stored because of that."""
    record = closed.record
    driver.send(
        batch_finished,
        id=record.id,
        name=record.name,
        total=record.total,
        done=record.done,
        failed=record.failed,
        cancelled=record.cancelled,
    )
    announce(driver, closed.then)


def _members(calls: Iterable[Call | Chain]) -> tuple[Call | Chain, ...]:
    return tuple(call if isinstance(call, Chain) else checked(call) for call in calls)


def _prepared(calls: Iterable[Call | Chain], batch_id: UUID) -> list[Prepared]:
    flow = Flow(batch=batch_id).write()
    return [call.prepare(batch_id)[0] if isinstance(call, Chain) else call.prepare(flow) for call in calls]


def _waits(prepared: Sequence[Prepared]) -> bool:
    """Whether a batch of these jobs waits for a commit: with it, or a job would have ended before it was a member."""
    wishes = {item.after_commit for item in prepared}
    if len(wishes) > 1:
        raise InvalidOption(
            "Some jobs of a batch have after_commit=False and others have not; they are stored together: give it to "
            "all of them or to none."
        )
    return wishes != {False}


def _driver_of(prepared: Sequence[Prepared]) -> Driver:
    aliases = sorted({item.connection for item in prepared}) or [DEFAULT]
    if len(aliases) > 1:
        raise InvalidOption(
            f"The jobs of a batch are for the connections {' and '.join(map(repr, aliases))}; a batch lives on one: "
            "using(connection=…)."
        )
    driver = connections[aliases[0]]
    if not driver.supports_batches:
        raise InvalidConnection(
            f"The connection {driver.alias!r} keeps no batches; dispatch its jobs to one with the database or "
            "the redis driver."
        )
    return driver


def _store(driver: Driver, new: NewBatch, prepared: Sequence[Prepared]) -> None:
    create = partial(driver.create_batch, new, [item.job.id for item in prepared])
    _store_members(driver, create, prepared, WaitingBatch(new.id, new.name, len(prepared), new))
    if not prepared:
        _now_or_after_commit(driver, partial(close, driver, new.id), waits=True)


def _join(driver: Driver, batch_id: UUID, job_ids: Sequence[UUID]) -> None:
    if not driver.join_batch(batch_id, job_ids):
        raise JobQueueError(
            f"The batch {batch_id} has ended, or was cancelled, or never was: no job can be added to it. A member "
            "that runs keeps its batch open."
        )


def _store_members(
    driver: Driver, begin: Callable[[], object], prepared: Sequence[Prepared], batch: WaitingBatch
) -> None:
    """Make jobs members by ``begin``, and store them: in one transaction, or in steps of which each may fail."""
    waits = _waits(prepared)
    if driver.supports_transactions:
        jobs = [item.job for item in prepared]
        _now_or_after_commit(driver, partial(_store_at_once, driver, begin, prepared), jobs, batch, waits=waits)
    else:
        _now_or_after_commit(driver, begin, batch=batch, waits=waits)
        store_many(prepared, batch)


def _store_at_once(driver: Driver, begin: Callable[[], object], prepared: Sequence[Prepared]) -> None:
    with transaction.atomic(using=driver.database):
        begin()
        store_many(prepared)


def _now_or_after_commit(
    driver: Driver,
    act: Callable[[], object],
    jobs: Sequence[NewJob] = (),
    batch: WaitingBatch | None = None,
    *,
    waits: bool,
) -> None:
    alias = commit_awaited(driver) if waits else None
    if alias is None:
        act()
    else:
        push_after_commit(alias, driver.alias, jobs, act, batch)
