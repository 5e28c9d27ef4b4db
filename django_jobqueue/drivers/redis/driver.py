"""The Redis driver: the contract by scripts, the client by django-redis, dead letters in the connection's database.

Every method that moves a job is one script, or takes hold of the job by its token first, writes the dead letter, and
ends it by the same token: whatever crashes in between is dealt with when that hold expires.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any, ClassVar, cast
from uuid import UUID

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, connections, router
from redis import Redis
from redis.client import PubSub
from redis.exceptions import DataError as RedisDataError
from redis.exceptions import RedisError

from ...exceptions import InvalidConnection
from ...jobs.chunks import cut
from ...jobs.flows import batch_of, caught
from ...jobs.ids import new_token
from ...jobs.records import (
    AttemptRecord,
    BatchRecord,
    Cause,
    ClosedBatch,
    Complete,
    Fail,
    JobRecord,
    NewBatch,
    NewJob,
    Position,
    QueueSize,
    Release,
    Rescued,
    Reservation,
    Reserved,
    ReserveLimit,
    ResultRecord,
    Settlement,
)
from ...jobs.times import EPOCH_UTC, from_microseconds, microseconds
from ...models import FailedJob, Job
from ..base import (
    CANCEL_LIMIT,
    PRUNE_LIMIT,
    RESCUE_LIMIT,
    STAGE_LIMIT,
    SWEEP_LIMIT,
    KeepFor,
    Namespace,
    Waiter,
    is_ready_at_once,
    keep_nothing,
    ready_queues,
)
from ..dead_letters import DeadLetterDriver
from ..ledger import Ledger
from ..tables import missing_tables
from ..transactions import is_conflict
from .batches import RedisBatches
from .cancelled import Waiting, kept, pages
from .ends import Argument, Ends, Recovery, in_groups
from .form import (
    Body,
    Form,
    Places,
    Unreadable,
    job_arguments,
    job_record,
    names_and_tokens,
    read_body,
    read_errors,
    read_form,
    reservation,
    result_record,
    stamp,
)
from .letters import RedisLetters, Returning, dead_job, unreadable_body, unreadable_job
from .news import NewsEar
from .options import RedisOptions
from .progress import RedisProgress
from .servers import asked
from .setup import problems, risks, setting_problems
from .store import PAGE, RedisStore

logger = logging.getLogger("django_jobqueue")

# How long a job is held while its dead letter is written: after a crash in between it stays away for so long.
HOLD_SECONDS = 30


class RedisDriver(DeadLetterDriver):
    name: ClassVar[str] = "redis"
    supports_batches: ClassVar[bool] = True
    outages: ClassVar[tuple[type[BaseException], ...]] = (RedisError, DatabaseError, InterfaceError)
    refusals: ClassVar[tuple[type[BaseException], ...]] = (DataError, IntegrityError, RedisDataError)

    dead_letters: RedisLetters

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.options = RedisOptions.read(alias, options)
        self._database = self.options.database or router.db_for_write(FailedJob)
        if self._database not in connections:
            raise InvalidConnection(
                f"The queue connection {alias!r} names the database {self._database!r} for its dead letters, which "
                "DATABASES lacks."
            )
        self.store = RedisStore(alias, self.options)
        self.keys = self.store.keys
        self.dead_letters = RedisLetters(alias, self._database)
        self.ledger = Ledger(self._database)
        self.batches = RedisBatches(alias, self.store)
        self.ear: NewsEar | None = None
        self.progress = RedisProgress(self.store)
        self._listening = Lock()
        self._id = new_token().hex

    @property
    def database(self) -> str:
        return self._database

    @property
    def kind(self) -> str:
        return "Redis"

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.options.server, self.options.prefix, self.options.has_prefix)

    @property
    def client(self) -> Redis:
        return self.store.client

    # Dispatch

    def push(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> set[UUID]:
        if not jobs:
            return set()
        places = Places()
        arguments = [argument for job in jobs for argument in job_arguments(job, places)]
        stored = self._store(places, arguments, now)
        self._wake(job.queue for job in jobs if is_ready_at_once(job))
        return {jobs[position].id for position in stored}

    def _store(self, places: Places, arguments: Sequence[Argument], now: datetime | None) -> list[int]:
        """The positions of those jobs that were stored."""
        given = [stamp(now), self._channel, new_token().hex, *arguments]
        stored: list[int] = self.store.run("push", places, given, self._answered)
        return stored

    # A worker's turn

    def queues(self) -> list[str]:
        return self.store.queues()

    def stage(self, queue: str, *, limit: int = STAGE_LIMIT, now: datetime | None = None) -> int:
        staged = int(self.store.run("stage", [queue], [stamp(now), self._channel, queue, limit]))
        if staged:
            self._wake([queue])
        return staged

    def reserve(
        self,
        queue: str,
        worker: str,
        limit: ReserveLimit,
        *,
        retry_after: float,
        after: Position | None = None,
        now: datetime | None = None,
    ) -> Reserved:
        """What was taken has left the set of ready jobs, so that ``after`` has nothing to skip.

        The client sends a call again when its connection was lost; what the first one took goes back then.
        """
        while (answer := self._reserve(queue, worker, limit, token := new_token(), retry_after, now)) is None:
            self._give_back(partial(_has_token, token.hex), now)
        _, more, *found = answer
        jobs, unreadable = [], []
        for job_id, text, body in in_groups(3, found):
            try:
                jobs.append(reservation(read_form(job_id, text), read_body(body), self.alias, token))
            except Unreadable:
                unreadable += [job_id, token.hex]
        if unreadable:
            self.store.run("aside", [], unreadable)
        return Reserved(jobs, more=bool(more) or bool(unreadable))

    def _reserve(
        self, queue: str, worker: str, limit: ReserveLimit, token: UUID, retry_after: float, now: datetime | None
    ) -> list[Any] | None:
        averages = [item for name, seconds in limit.averages.items() for item in (name, repr(seconds))]
        arguments: list[Argument] = [
            stamp(now),
            queue,
            worker.replace("\n", " "),
            token.hex,
            limit.rows,
            limit.max_attempts,
            microseconds(retry_after),
            repr(limit.seconds),
            *averages,
        ]
        answer: list[Any] | None = self.store.run("reserve", [queue], arguments, self.keys.answered(worker))
        return answer

    def renew(
        self, reservations: Collection[Reservation], *, retry_after: float, now: datetime | None = None
    ) -> set[UUID]:
        if not reservations:
            return set()
        lost = self.store.run("renew", [], [stamp(now), microseconds(retry_after), *names_and_tokens(reservations)])
        return {UUID(job_id.decode()) for job_id in lost}

    def still_held(self, reservations: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
        asked = list(reservations)
        if not asked:
            return set()
        places = self.store.run("held", [], [text for pair in asked for text in (pair[0].hex, pair[1].hex)])
        return {asked[place] for place in places}

    def hand_back(self, reservations: Collection[Reservation]) -> set[UUID]:
        ends = Ends()
        for held in reservations:
            ends.hand_back(held)
        return self._end(ends, None)

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> set[UUID]:
        dead, stored_at = self._store_dead([item for item in settlements if isinstance(item, Fail)], now)
        ends = Ends()
        for item in settlements:
            if isinstance(item, Complete):
                ends.complete(item)
            elif isinstance(item, Release):
                ends.release(item)
            elif (item.reservation.id, item.reservation.token.hex) in dead:
                held = item.reservation
                ends.remove(held.id, held.token.hex, held.queue, item.then, batch=item.batch, has_failed=True)
        ours = self._end(ends, now)
        self.dead_letters.take_back([form for form in dead.values() if form.id not in ours], stored_at)
        self._wake(ready_queues(item for item in settlements if item.reservation.id in ours))
        return ours

    def _store_dead(self, fails: Sequence[Fail], now: datetime | None) -> tuple[dict[tuple[UUID, str], Form], datetime]:
        """Write the dead letters of what is still held.

        Return the form of each that is kept, by its id and token, and the moment of the letters.
        """
        if not fails:
            return {}, EPOCH_UTC
        reservations = names_and_tokens(item.reservation for item in fails)
        moment, *found = self.store.run("hold", [], [stamp(now), microseconds(HOLD_SECONDS), *reservations])
        dead, errors = {}, {}
        for job_id, text, history in in_groups(3, found):
            form = read_form(job_id, text)
            dead[form.id, form.token], errors[form.id, form.token] = form, read_errors(history)
        jobs = []
        for item in fails:
            held = item.reservation
            key = held.id, held.token.hex
            if key in dead:
                body = Body(held.payload, held.metadata, held.masked, held.flow)
                jobs.append((dead_job(dead[key], body, errors[key]), item.record))
        stored_at = from_microseconds(int(moment))
        kept = self.dead_letters.store(jobs, stored_at)
        return {key: form for key, form in dead.items() if form.id in kept}, stored_at

    def rescue(self, *, max_attempts: int, limit: int = RESCUE_LIMIT, now: datetime | None = None) -> list[Rescued]:
        token = new_token().hex
        claimed = self.store.run("claim", [], [stamp(now), microseconds(HOLD_SECONDS), limit, token])
        moment, has_unreadable, *found = claimed
        at = from_microseconds(int(moment))
        forms, unreadable = [], []
        for job_id, text in in_groups(2, found):
            try:
                forms.append(read_form(job_id, text))
            except Unreadable:
                unreadable += [job_id, token]
        if unreadable:
            self.store.run("aside", [], unreadable)
        rescued = self._recover_all(forms, Recovery(max_attempts), at, now)
        if has_unreadable or unreadable:
            try:
                self._bury_unreadable(at)
            except self.outages:
                if not rescued:  # which the caller has to hear of; the next rescue meets the outage again
                    raise
        return rescued

    def rescue_in_hand(
        self,
        job_id: UUID,
        token: UUID,
        *,
        max_attempts: int,
        spends: bool = True,
        cause: Cause | None = None,
        now: datetime | None = None,
    ) -> Rescued | None:
        moment, *found = self.store.run("hold", [], [stamp(now), microseconds(HOLD_SECONDS), job_id.hex, token.hex])
        try:
            forms = [read_form(found_id, text) for found_id, text, _errors in in_groups(3, found)]
        except Unreadable:
            return None  # a rescue sets it aside
        how = Recovery(max_attempts, is_in_hand=True, spends=spends, cause=cause)
        rescued = self._recover(forms, how, from_microseconds(int(moment)), now)
        return rescued[0] if rescued else None

    def _recover_all(
        self, forms: Sequence[Form], how: Recovery, moment: datetime, now: datetime | None
    ) -> list[Rescued]:
        """As ``_recover``; a job of which that fails costs no other anything, and is tried again when our hold ends."""
        try:
            return self._recover(forms, how, moment, now)
        except Exception as error:
            if isinstance(error, self.outages) and not isinstance(error, self.refusals):
                raise
            if len(forms) == 1:
                logger.exception("The job %s cannot be rescued.", forms[0].id)
                return []
        return [each for form in forms for each in self._recover_all([form], how, moment, now)]

    def _recover(self, forms: Sequence[Form], how: Recovery, moment: datetime, now: datetime | None) -> list[Rescued]:
        """End reservations of lost workers, which are held for us."""
        if not forms:
            return []
        over = self.dead_letters.settled_before(forms, moment)
        rescued = {form.id: how.rescued(form, moment) for form in forms if form.id not in over}
        dead = [form for form in forms if form.id in rescued and rescued[form.id].dead_lettered]
        letters = [(self._dead_job(form), cast(AttemptRecord, rescued[form.id].record)) for form in dead]
        kept = self.dead_letters.store(letters, moment)
        dead = [form for form in dead if form.id in kept]
        for job, record in letters:
            then = caught(job.flow, job.id, job.name, job.queue, job.rank, self.alias, record)
            rescued[job.id] = replace(rescued[job.id], then=then, batch=batch_of(job.flow))
        ends = Ends()
        for form in forms:
            if form.id in over:
                job = self._dead_job(form)
                then = caught(job.flow, job.id, job.name, job.queue, job.rank, self.alias, over[form.id])
                ends.remove(form.id, form.token, form.queue, then, batch=form.batch, has_failed=True)
            elif form.id in kept:
                then = rescued[form.id].then
                ends.remove(form.id, form.token, form.queue, then, batch=form.batch, has_failed=True)
            elif not rescued[form.id].dead_lettered:
                ends.recover(form, rescued[form.id], counts=how.spends)
        ours = self._end(ends, now)
        self.dead_letters.take_back([form for form in dead if form.id not in ours], moment)
        return [each for job_id, each in rescued.items() if job_id in ours]

    def _dead_job(self, form: Form) -> Job:
        _, found, errors = self.store.parts(form.id)
        try:
            body = read_body(found)
        except Unreadable:
            body = unreadable_body(found)
        return dead_job(form, body, read_errors(errors))

    def release_worker(self, worker: str, *, but: Collection[UUID] = (), now: datetime | None = None) -> int:
        return self._give_back(lambda form: form.worker == worker and form.id not in but, now)

    def _give_back(self, is_meant: Callable[[Form], bool], now: datetime | None) -> int:
        """Hand back those of all reserved jobs that were never started."""
        ends, seen = Ends(), set()
        for form in self.store.reserved():
            if is_meant(form) and form.id not in seen:
                seen.add(form.id)
                ends.add(form.id, form.token, form.queue, "hand_back")
        return len(self._end(ends, now))

    def _bury_unreadable(self, now: datetime) -> None:
        """What scripts have set aside becomes dead letters; after a crash in between it does so again."""
        page = self.client.hscan(self.keys.unreadable, count=PAGE)
        found = cast(dict[bytes, bytes], page[1])
        jobs = {field: unreadable_job(field, value, now) for field, value in found.items()}
        kept = self.dead_letters.store(list(jobs.values()), now)
        buried = [field for field, (job, _) in jobs.items() if job.id in kept]
        if buried:
            self.client.hdel(self.keys.unreadable, *buried)

    # What people do

    def cancel(
        self, job_id: UUID, *, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> JobRecord | None:
        parts = self.store.parts(job_id)
        try:
            job = job_record(job_id.hex.encode(), parts, self.alias)
        except Unreadable:
            return None
        arguments = [stamp(now), job_id.hex, job.queue, *kept(job, keep_for), new_token().hex]
        found = self.store.run("cancel", [job.queue], arguments, self._answered)
        return job_record(job_id.hex.encode(), [*found, *parts[len(found) :]], self.alias) if found else None

    def clear(self, queue: str, *, limit: int, keep_for: KeepFor = keep_nothing, now: datetime | None = None) -> int:
        removed, *found = self.store.run("clear", [queue], [queue, limit])
        waiting = [Waiting(job_id, name, place) for place, job_id, name in in_groups(3, found)]
        for page in pages(self.store, waiting, keep_for):
            arguments: list[Argument] = []
            for job, *result in page:
                arguments += [job.where, job.id, *result]
            removed += self.store.run("clear_remove", [queue], [stamp(now), queue, *arguments])
        return int(removed)

    def get(self, job_id: UUID) -> JobRecord | None:
        found = self.store.parts(job_id)
        try:
            return job_record(job_id.hex.encode(), found, self.alias)
        except Unreadable:
            return self.dead_letters.get(job_id)

    def peek(self, queue: str, *, limit: int) -> list[JobRecord]:
        return self.store.records("peek", queue, limit)

    def waiting(self, queue: str, *, limit: int) -> list[JobRecord]:
        return self.store.records("waiting", queue, limit)

    def sizes(self, *, now: datetime | None = None) -> dict[str, QueueSize]:
        found = self.store.counts(stamp(now))
        for queue, count in self.dead_letters.counts().items():
            found.setdefault(queue, {})["failed"] = count
        return {queue: QueueSize(**found[queue]) for queue in sorted(found)}

    # Dead letters

    def retry(self, retry_for: Mapping[int, float | None], *, now: datetime | None = None) -> set[int]:
        retried = self.dead_letters.put_back(retry_for, lambda rows: self._push_back(rows, now))
        self._wake(retried.values())
        return set(retried)

    def _flow_left(self, job_id: UUID) -> str | None:
        try:
            return job_record(job_id.hex.encode(), self.store.parts(job_id), self.alias).flow
        except Unreadable:
            return None

    def _push_back(self, rows: Sequence[Returning], now: datetime | None) -> None:
        """In several scripts where they are long: what a crash leaves in between is stored once more."""
        for chunk in cut(rows, attrgetter("size")):
            places = Places()
            arguments = [argument for row in chunk for argument in row.arguments(places, self._flow_left(row.job_id))]
            self._store(places, arguments, now)

    # Results

    def get_result(self, job_id: UUID, *, now: datetime | None = None) -> ResultRecord | None:
        found = self.store.run("result", [], [stamp(now), job_id.hex])
        try:
            return result_record(job_id, found, self.alias) if found else None
        except Unreadable:
            return None

    def prune_results(self, *, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        return int(self.store.run("prune", [], [stamp(now), 0, limit, "results"]))

    # Batches

    def create_batch(self, batch: NewBatch, job_ids: Sequence[UUID], *, now: datetime | None = None) -> None:
        self.batches.create(batch, job_ids, stamp(now))

    def join_batch(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        return self.batches.join(batch_id, job_ids)

    def awaited_members(self, batch_id: UUID, job_ids: Sequence[UUID]) -> set[UUID]:
        return self.batches.awaited(batch_id, job_ids)

    def close_batch(self, batch_id: UUID, *, now: datetime | None = None) -> ClosedBatch | None:
        closed = self.batches.close(batch_id, stamp(now), self._channel)
        if closed is not None:
            self._wake(job.queue for job in closed.then if is_ready_at_once(job))
        return closed

    def sweep_batches(
        self, *, limit: int = SWEEP_LIMIT, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> list[ClosedBatch]:
        for batch_id in self.batches.cancelled_and_open(limit, stamp(now)):
            self.cancel_batch(batch_id, keep_for=keep_for, now=now)
        closed = [self.close_batch(batch_id, now=now) for batch_id in self.batches.over(limit)]
        return [batch for batch in closed if batch is not None]

    def get_batch(self, batch_id: UUID) -> BatchRecord | None:
        return self.batches.get(batch_id)

    def cancel_batch(
        self,
        batch_id: UUID,
        *,
        limit: int = CANCEL_LIMIT,
        keep_for: KeepFor = keep_nothing,
        now: datetime | None = None,
    ) -> int:
        return self.batches.cancel(batch_id, limit, keep_for, stamp(now))

    def prune_batches(self, *, older_than: float, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        return self.batches.prune(older_than, limit, stamp(now))

    def setting_problems(self) -> list[str]:
        return setting_problems(self.alias, self.options)

    def problems(self) -> list[str]:
        return self.setting_problems() or problems(self.client, self.alias) or self.row_problems()

    def row_problems(self) -> list[str]:
        return missing_tables(self._database, [FailedJob], self.outages, ", where dead letters lie")

    def store_id(self) -> str | None:
        return asked(self.client)

    def risks(self) -> list[tuple[str, str]]:
        return risks(self.client, self.alias, self.options)

    # Waiting

    def listen(self, waiter: Waiter, queues: Collection[str] | None = None) -> None:
        with self._listening:
            super().listen(waiter, queues)
            if self.ear is None and self.notifies:
                self.ear = NewsEar(self._subscription, self.keys.channel, self.wake_listeners)

    def unlisten(self, waiter: Waiter) -> None:
        with self._listening:
            super().unlisten(waiter)
            if self.ear is not None and not self.has_listeners:
                self.ear.close()
                self.ear = None

    def _subscription(self) -> PubSub:
        return cast(PubSub, self.client.pubsub())  # type: ignore[no-untyped-call]

    def _wake(self, queues: Iterable[str]) -> None:
        """Those in this process at once; others hear it from the script."""
        for queue in set(queues) if self.has_listeners else ():
            self.wake_listeners(queue)

    # Details

    def is_busy(self, error: BaseException) -> bool:
        return is_conflict(error)

    def close(self) -> None:
        """Sockets that nobody uses just now; the cache of the same alias opens its own anew."""
        self.store.close()
        connections[self._database].close_if_unusable_or_obsolete()

    @property
    def _channel(self) -> str:
        """Empty where nobody is to be told."""
        return self.keys.channel if self.notifies else ""

    def _end(self, ends: Ends, now: datetime | None) -> set[UUID]:
        """Return the ids that were still held."""
        if not ends.ids:
            return set()
        arguments = [stamp(now), self._channel, new_token().hex, *ends.arguments]
        ours = self.store.run("settle", ends.places, arguments, self._answered)
        return {ends.ids[position] for position in ours}

    @property
    def _answered(self) -> str:
        """The key for the answer to the last call of this thread: with one for each call they would heap up."""
        return self.keys.answered(f"{self._id}:{os.getpid()}:{get_ident()}")


def _has_token(token: str, form: Form) -> bool:
    return form.token == token
