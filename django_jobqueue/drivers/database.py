"""The database driver: every query of the hot path, in the order of a job's life.

Order is queue, rank, ready_at, id, and one index serves it. Every transaction begins with what
``own_transaction`` says; every write to a reservation names its id and its token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    connections,
    router,
)
from django.db.backends.utils import CursorWrapper
from django.db.models import Count, F, Min, QuerySet

from ..exceptions import InvalidConnection
from ..jobs.chunks import cut, job_bytes
from ..jobs.flows import batch_of, caught
from ..jobs.ids import new_token
from ..jobs.records import (
    READY,
    RESERVED,
    SCHEDULED,
    AttemptHistory,
    AttemptRecord,
    BatchRecord,
    Candidate,
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
from ..jobs.rescue import Verdict, unfinished, verdict, verdict_in_hand
from ..jobs.times import from_microseconds, microseconds
from ..models import Batch, BatchMember, FailedJob, Job, Progress, Result
from ..models.batch import CANCELLED
from ..models.batch import FAILED as MEMBER_FAILED
from ..models.fields import as_uuid, store_clock, store_now_sql, uuid_parameter
from . import postgresql
from .base import (
    CANCEL_LIMIT,
    PRUNE_LIMIT,
    RESCUE_LIMIT,
    STAGE_LIMIT,
    SWEEP_LIMIT,
    KeepFor,
    Waiter,
    is_ready_at_once,
    keep_nothing,
    ready_queues,
)
from .batches import Batches
from .dead_letters import DeadLetterDriver, DeadLetters
from .expressions import force_index, start_behind
from .hints import Hints
from .inserts import insert_statement
from .ledger import Ledger
from .listening import Listener, can_listen
from .progress_rows import ProgressRows, still_held
from .results import Results
from .slowness import slowdowns
from .tables import missing_tables
from .transactions import is_conflict, opening_statements, own_look, own_transaction, repeating

RESERVE_INDEX = "jobqueue_job_reserve"

_RESERVE_COLUMNS = (
    "id",
    "name",
    "payload",
    "format",
    "rank",
    "attempts",
    "max_attempts",
    "exceptions",
    "crashes",
    "ready_at",
    "created_at",
    "retry_until",
    "metadata",
    "masked",
    "flow",
)

# The queue names by one index probe each; DISTINCT would read the whole index. The parameter says nothing: without
# one PostgreSQL would keep the plan of a prepared statement, whatever it is told.
_QUEUES_SQL = """
WITH RECURSIVE found (queue) AS (
  SELECT MIN(queue) FROM django_jobqueue_job WHERE queue > %s
  UNION ALL
  SELECT (SELECT MIN(job.queue) FROM django_jobqueue_job job WHERE job.queue > found.queue)
  FROM found WHERE found.queue IS NOT NULL
) SELECT queue FROM found WHERE queue IS NOT NULL
"""
# MySQL and MariaDB would read the whole index for that, and for DISTINCT too while their statistics are old.
_NEXT_QUEUE_SQL = "SELECT MIN(queue) FROM django_jobqueue_job WHERE queue > %s"


class DatabaseDriver(DeadLetterDriver):
    name: ClassVar[str] = "database"
    supports_transactions: ClassVar[bool] = True
    supports_batches: ClassVar[bool] = True
    #: Whether a database may do in one statement what the portable form does in several.
    uses_vendor_forms = True
    # DatabaseError itself is what SQLite raises for a file that is damaged.
    outages: ClassVar[tuple[type[BaseException], ...]] = (DatabaseError, InterfaceError)
    refusals: ClassVar[tuple[type[BaseException], ...]] = (DataError, IntegrityError)

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        unknown = sorted(set(options) - {"DATABASE"})
        if unknown:
            raise InvalidConnection(
                f"The queue connection {alias!r} has the key {unknown[0]!r}; the database driver takes DATABASE."
            )
        self._database = options.get("DATABASE") or router.db_for_write(Job)
        if self._database not in connections:
            raise InvalidConnection(
                f"The queue connection {alias!r} names the database {self._database!r}, which DATABASES lacks."
            )
        self.dead_letters = DeadLetters(alias, self._database)
        self.ledger = Ledger(self._database)
        self.results = Results(alias, self._database)
        self.batches = Batches(alias, self._database)
        self.progress = ProgressRows(alias, self._database)
        self._hints = Hints(self._database, self.wake_listeners)
        self._listener: Listener | None = None
        self._listening = Lock()

    @property
    def database(self) -> str:
        return self._database

    @property
    def kind(self) -> str:
        return str(connections[self._database].display_name)

    @property
    def _jobs(self) -> QuerySet[Job]:
        return Job.objects.using(self._database)

    # Dispatch

    def push(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> set[UUID]:
        chunks = list(cut(jobs, job_bytes))

        def store() -> set[UUID]:
            if len(chunks) == 1:
                return self._insert_chunk(chunks[0], now)
            with own_transaction(self._database):
                return self._insert(jobs, now)

        if not chunks:
            return set()
        stored = repeating(self._database, store)
        self._tell({job.queue for job in jobs if is_ready_at_once(job)})
        return stored

    def _insert(self, jobs: Iterable[NewJob], now: datetime | None) -> set[UUID]:
        """In the caller's transaction, since it may take several statements."""
        return set().union(*(self._insert_chunk(chunk, now) for chunk in cut(jobs, job_bytes)))

    def _insert_chunk(self, jobs: Sequence[NewJob], now: datetime | None) -> set[UUID]:
        """One statement, or on MySQL a second one without the ids that were there already."""
        vendor = connections[self._database].vendor
        if self._has_statements_of_postgresql and len(jobs) > 1:
            with connections[self._database].cursor() as cursor:
                cursor.execute(*postgresql.insert_statement(jobs, now))
                (stored,) = cursor.fetchone()
            return {job.id for job in jobs} if stored is None else set(stored)
        # A single row carries the clock's SQL; for many it is read once, before the transaction's first write.
        now = self._now() if now is None and len(jobs) > 1 else now
        sql, params = insert_statement(jobs, vendor, now)
        if vendor == "mysql":
            return self._insert_mysql(jobs, sql, params, now)
        return self._ids_of(f"{sql} ON CONFLICT (id) DO NOTHING RETURNING id", params)

    def _ids_of(self, sql: str, params: Any) -> set[UUID]:
        with connections[self._database].cursor() as cursor:
            cursor.execute(sql, params)
            return {as_uuid(row[0]) for row in cursor.fetchall()}

    def _insert_mysql(self, jobs: Sequence[NewJob], sql: str, params: list[Any], now: datetime | None) -> set[UUID]:
        """MySQL has neither DO NOTHING nor RETURNING, and its IGNORE would cut values silently."""
        try:
            with connections[self._database].cursor() as cursor:
                cursor.execute(sql, params)
        except IntegrityError:
            wanted = {job.id: job for job in reversed(jobs)}  # of two under one id the first
            known = set(self._jobs.filter(id__in=wanted).values_list("id", flat=True))
            others = [job for job_id, job in wanted.items() if job_id not in known]
            if len(others) == len(jobs):
                raise
            return self._insert_chunk(others, now) if others else set()
        return {job.id for job in jobs}

    # A worker's turn

    def queues(self) -> list[str]:
        return repeating(self._database, self._queues)

    def _queues(self) -> list[str]:
        connection = connections[self._database]
        with own_look(self._database), connection.cursor() as cursor:
            if connection.vendor == "mysql":
                return list(_queues_one_by_one(cursor))
            cursor.execute(_QUEUES_SQL, [""])
            return sorted(row[0] for row in cursor.fetchall())  # not by the database's collation

    def stage(self, queue: str, *, limit: int = STAGE_LIMIT, now: datetime | None = None) -> int:
        due = self._jobs.filter(queue=queue, state=SCHEDULED, available_at__lte=store_clock(now))
        due = due.order_by("available_at")
        if not self._any(due):
            return 0

        def move() -> int:
            with own_transaction(self._database):
                ids = self._locked_ids(due, limit)
                return self._jobs.filter(id__in=ids, state=SCHEDULED).update(state=READY, ready_at=store_clock(now))

        return repeating(self._database, move)

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
        asked = _Asked(queue, worker, limit, retry_after, after, now)
        if self._takes_in_one_statement(limit):
            take = self._take_in_one_statement
        elif self._skips_locked:
            take = self._take_locked
        else:
            take = self._take_guarded
        return repeating(self._database, lambda: take(asked))

    def _ready(self, asked: _Asked) -> QuerySet[Job]:
        """The ready jobs of a queue in their order, behind the given position."""
        ready = self._jobs.filter(queue=asked.queue, state=READY).order_by("rank", "ready_at", "id")
        if asked.after is not None:
            start_behind(ready, asked.after)
        if connections[self._database].vendor == "mysql":
            force_index(ready, RESERVE_INDEX)
        return ready

    def _take(self, ids: list[UUID], asked: _Asked, token: UUID) -> None:
        self._jobs.filter(id__in=ids, state=READY).update(
            state=RESERVED,
            attempts=F("attempts") + 1,
            token=token,
            worker=asked.worker,
            alone=len(ids) == 1,
            reserved_at=store_clock(asked.now),
            reserved_until=store_clock(asked.now, microseconds(asked.retry_after)),
        )

    def _take_locked(self, asked: _Asked) -> Reserved:
        """Lock the leading rows, take those that fit; the commit unlocks the rest."""
        with own_transaction(self._database):
            locking = self._locking(self._ready(asked)).annotate(_now=store_clock(asked.now))
            rows = list(locking.values_list(*_RESERVE_COLUMNS, "_now")[: asked.limit.rows])
            taken = rows[: asked.limit.leading([_candidate(row) for row in rows])]
            if not taken:
                return Reserved([], more=False)
            token = new_token()
            self._take([row[0] for row in taken], asked, token)
        return self._reserved(asked, token, taken, seen=len(rows), alone=len(taken) == 1, counted=False)

    def _take_guarded(self, asked: _Asked) -> Reserved:
        """Without row locks: read, then take by a guarded update; what others took meanwhile stays theirs.

        The read stays outside of the transaction, which begins with its write; what was taken is read back by
        the token, which nobody else has.
        """
        columns = ("id", "name", "attempts", "max_attempts", "crashes")
        rows = list(self._ready(asked).values_list(*columns)[: asked.limit.rows])
        ids = [row[0] for row in rows][: asked.limit.leading([Candidate(*row[1:]) for row in rows])]
        if not ids:
            return Reserved([], more=False)
        token = new_token()
        with own_transaction(self._database):
            self._take(ids, asked, token)
            own = self._jobs.filter(id__in=ids, token=token).annotate(_now=store_clock(asked.now))
            taken = list(own.values_list(*_RESERVE_COLUMNS, "_now"))
        return self._reserved(asked, token, taken, seen=len(rows), alone=len(ids) == 1, counted=True)

    def _takes_in_one_statement(self, limit: ReserveLimit) -> bool:
        """A statement of its own cannot set the isolation level, nor give its locks back in a caller's transaction."""
        connection = connections[self._database]
        return (
            self._has_statements_of_postgresql
            and not connection.in_atomic_block
            and len(limit.averages) <= postgresql.MOST_NAMES
            and not opening_statements(connection)
        )

    def _take_in_one_statement(self, asked: _Asked) -> Reserved:
        token = new_token()
        sql, params = postgresql.reserve_statement(
            asked.queue,
            asked.worker,
            token,
            asked.limit,
            _RESERVE_COLUMNS,
            retry_after=asked.retry_after,
            after=asked.after,
            now=asked.now,
        )
        with connections[self._database].cursor() as cursor:
            cursor.execute(sql, params)
            rows = cursor.fetchall()
        if not rows:
            return Reserved([], more=False)
        reserved_at, alone, seen = from_microseconds(rows[0][-3]), rows[0][-2], rows[0][-1]
        taken = [
            (
                *row[:9],
                from_microseconds(row[9]),
                from_microseconds(row[10]),
                None if row[11] is None else from_microseconds(row[11]),
                row[12],
                row[13],
                row[14],
                reserved_at,
            )
            for row in rows
        ]
        return self._reserved(asked, token, taken, seen=seen, alone=alone, counted=True)

    def _reserved(
        self, asked: _Asked, token: UUID, rows: list[Any], *, seen: int, alone: bool, counted: bool
    ) -> Reserved:
        """``seen`` is how many rows there were to take from; ``counted`` says that the attempts include this one."""
        if not rows:  # others took them all meanwhile
            return Reserved([], more=seen > 0)
        reserved_at = rows[0][15]
        until = reserved_at + timedelta(seconds=asked.retry_after)
        jobs = [
            Reservation(
                id=row[0],
                token=token,
                worker=asked.worker,
                connection=self.alias,
                queue=asked.queue,
                name=row[1],
                payload=row[2],
                format=row[3],
                rank=row[4],
                attempt=row[5] if counted else row[5] + 1,
                max_attempts=row[6],
                exceptions=row[7],
                crashes=row[8],
                alone=alone,
                ready_at=row[9],
                created_at=row[10],
                retry_until=row[11],
                metadata=row[12],
                masked=row[13],
                flow=row[14],
                reserved_at=reserved_at,
                reserved_until=until,
            )
            for row in rows
        ]
        jobs.sort(key=attrgetter("rank", "ready_at", "id"))
        return Reserved(jobs, more=seen == asked.limit.rows or len(jobs) < seen)

    def renew(
        self, reservations: Collection[Reservation], *, retry_after: float, now: datetime | None = None
    ) -> set[UUID]:
        """Rows that an atomic job holds are skipped: its lock is its lease."""

        def move_on() -> set[UUID]:
            lost: set[UUID] = set()
            with own_transaction(self._database):
                for token, ids in _by_token(reservations):
                    own = self._jobs.filter(id__in=ids, token=token).order_by("id")
                    locked = self._locked_ids(own, len(ids))
                    own.filter(id__in=locked).order_by().update(
                        reserved_until=store_clock(now, microseconds(retry_after))
                    )
                    if len(locked) < len(ids):
                        lost |= set(ids) - set(own.values_list("id", flat=True))
            return lost

        return repeating(self._database, move_on)

    def still_held(self, reservations: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
        return repeating(self._database, lambda: still_held(self._database, reservations))

    def hand_back(self, reservations: Collection[Reservation]) -> set[UUID]:
        def give() -> set[UUID]:
            owned: set[UUID] = set()
            with own_transaction(self._database):
                for token, ids in _by_token(reservations):
                    found = self._lock_owned(ids, token)
                    self._jobs.filter(id__in=found).update(**_UNRESERVED, state=READY, attempts=F("attempts") - 1)
                    owned |= set(found)
            return owned

        owned = repeating(self._database, give)
        self._tell({held.queue for held in reservations})
        return owned

    def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> set[UUID]:
        def end() -> set[UUID]:
            if alone is not None:
                ids, token, has_members = alone
                return self._delete_members(ids, token) if has_members else self._delete_owned(ids, token)
            completed = [item for item in settlements if isinstance(item, Complete)]
            others = [item for item in settlements if not isinstance(item, Complete)]
            is_all = not others and not any(item.then or item.batch for item in completed)
            if in_one_statement and is_all and not opening_statements(connections[self._database]):
                return {item.reservation.id for item in self._complete_in_one_statement(completed, now)}
            with own_transaction(self._database):
                complete = self._complete_in_one_statement if in_one_statement else self._complete
                ended = complete(completed, now)
                owned = {item.reservation.id for item in ended}
                follow = [job for item in ended for job in item.then]
                self._leave_batches([item for item in ended if item.batch is not None])
                for item in others:
                    if self._settle_unfinished(item, now):
                        owned.add(item.reservation.id)
                        follow += item.then if isinstance(item, Fail) else ()
                if follow:
                    self._insert(follow, now)
                return owned

        alone = self._one_delete(settlements)
        keeps = any(isinstance(item, Complete) and item.result is not None for item in settlements)
        in_one_statement = keeps and self._has_statements_of_postgresql
        owned = repeating(self._database, end)
        self._tell(ready_queues(item for item in settlements if item.reservation.id in owned))
        return owned

    def _one_delete(self, settlements: Sequence[Settlement]) -> tuple[list[UUID], UUID, bool] | None:
        """The ids and the token of jobs that one DELETE settles, and whether members of batches are among them."""
        plain = [item for item in settlements if isinstance(item, Complete) and not item.then and item.result is None]
        tokens = {item.reservation.token for item in settlements}
        if len(plain) < len(settlements) or len(tokens) != 1 or not self._returns_deleted:
            return None
        members = [item for item in plain if item.batch is not None]
        return sorted([item.reservation.id for item in plain]), tokens.pop(), bool(members)

    def _delete_members(self, ids: list[UUID], token: UUID) -> set[UUID]:
        """As ``_delete_owned``; who of them was a member of a batch leaves it."""
        if self._has_statements_of_postgresql and not opening_statements(connections[self._database]):
            return self._ids_of(*postgresql.delete_members_statement(ids, token))
        with own_transaction(self._database):
            owned = self._delete_owned(ids, token)
            self.batches.leave(owned)
            return owned

    def _complete(self, completed: Sequence[Complete], now: datetime | None) -> list[Complete]:
        """Delete jobs, and keep their results; return those that were still ours."""
        # Before the rows go; of those that turn out to be ours nobody else writes it meanwhile.
        histories = self._histories([item.reservation.id for item in completed if item.result is not None])
        deleted: set[tuple[UUID, UUID]] = set()
        for token, ids in _by_token([item.reservation for item in completed]):
            deleted |= {(job_id, token) for job_id in self._delete_owned(ids, token)}
        # By token too: a stale reservation may come with the valid one of the same job.
        ended = [item for item in completed if _key(item.reservation) in deleted]
        results = [(item.reservation, item.result) for item in ended if item.result is not None]
        if results:
            self.results.add([(held, result, histories[held.id]) for held, result in results], now)
        return ended

    def _complete_in_one_statement(self, completed: Sequence[Complete], now: datetime | None) -> list[Complete]:
        with connections[self._database].cursor() as cursor:
            cursor.execute(*postgresql.complete_statement(completed, self.alias, now))
            deleted = set(cursor.fetchall())
        return [item for item in completed if _key(item.reservation) in deleted]

    def _histories(self, ids: list[UUID]) -> dict[UUID, str]:
        """The stored errors of jobs, as text."""
        return dict(self._jobs.filter(id__in=ids).values_list("id", "errors")) if ids else {}

    def _leave_batches(self, ended: Collection[Complete]) -> None:
        leaving = [item.reservation.id for item in ended if not item.then]
        if leaving:
            self.batches.leave(leaving)
        for item in ended:
            if item.then:
                self.batches.move(item.reservation.id, item.then[0].id)

    def _settle_unfinished(self, item: Release | Fail, now: datetime | None) -> bool:
        held = item.reservation
        job = self._jobs.select_for_update().filter(id=held.id, token=held.token).first()
        if job is None:
            return False
        if isinstance(item, Fail):
            self.dead_letters.add([(job, item.record)], now)
            self._jobs.filter(id=job.id).delete()
            if item.batch is not None:
                self.batches.mark([job.id], MEMBER_FAILED)
            return True
        changes: dict[str, Any] = dict(_UNRESERVED)
        if item.record is None:
            changes["attempts"] = F("attempts") - 1
        else:
            changes["exceptions"] = F("exceptions") + 1
            changes["errors"] = AttemptHistory.read(job.errors).plus(item.record).write()
        delay = microseconds(item.delay)
        moment = store_clock(now, delay)
        changes |= {"state": SCHEDULED if delay else READY, "ready_at": moment, "available_at": moment}
        self._jobs.filter(id=job.id).update(**changes)
        return True

    def rescue(self, *, max_attempts: int, limit: int = RESCUE_LIMIT, now: datetime | None = None) -> list[Rescued]:
        expired = self._jobs.filter(state=RESERVED, reserved_until__lte=store_clock(now)).order_by("reserved_until")
        if not self._any(expired):
            return []

        def save() -> list[Rescued]:
            with own_transaction(self._database):
                rows = list(self._locking(expired).annotate(_now=store_clock(now)).defer("payload")[:limit])
                return [self._rescue_one(job, max_attempts, job._now, now) for job in rows]

        return repeating(self._database, save)

    def _rescue_one(self, job: Job, default_max_attempts: int, moment: datetime, now: datetime | None) -> Rescued:
        limit = default_max_attempts if job.max_attempts is None else job.max_attempts
        decision = verdict(
            alone=job.alone, attempts=job.attempts, max_attempts=limit, retry_until=job.retry_until, now=moment
        )
        return self._recover(job, decision, limit, moment, now)

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
        own = self._jobs.filter(id=job_id, token=token)

        def save() -> Rescued | None:
            with own_transaction(self._database):
                # Not skipping locked rows: an atomic job's row is locked until the store misses its process.
                job = own.select_for_update().annotate(_now=store_clock(now)).defer("payload").first()
                if job is None:
                    return None
                limit = max_attempts if job.max_attempts is None else job.max_attempts
                decision = verdict_in_hand(
                    spends=spends, attempts=job.attempts, max_attempts=limit, retry_until=job.retry_until, now=job._now
                )
                return self._recover(job, decision, limit, job._now, now, cause, counts=spends)

        rescued = repeating(self._database, save)
        if rescued is not None and not rescued.dead_lettered:
            self._tell({rescued.queue})
        return rescued

    def _recover(
        self,
        job: Job,
        decision: Verdict,
        limit: int,
        moment: datetime,
        now: datetime | None,
        cause: Cause | None = None,
        *,
        counts: bool = True,
    ) -> Rescued:
        started = job.reserved_at or job.ready_at
        record = unfinished(job.attempts, job.worker, job.ready_at, started, moment, cause)
        then: tuple[NewJob, ...] = ()
        batch: UUID | None = None
        if decision == "dead_letter":
            self.dead_letters.add([(job, record)], now)
            self._jobs.filter(id=job.id).delete()
            then = caught(job.flow, job.id, job.name, job.queue, job.rank, self.alias, record)
            if then:
                self._insert(then, now)
            batch = batch_of(job.flow)
            if batch is not None:
                self.batches.mark([job.id], MEMBER_FAILED)
        else:
            changes = {
                **_UNRESERVED,
                "state": READY,
                "ready_at": store_clock(now),
                "crashes": F("crashes") + int(counts),
            }
            if decision == "give_back":
                changes["attempts"] = F("attempts") - 1
            else:
                changes["errors"] = AttemptHistory.read(job.errors).plus(record).write()
            self._jobs.filter(id=job.id).update(**changes)
        return Rescued(
            id=job.id,
            name=job.name,
            queue=job.queue,
            attempt=job.attempts,
            max_attempts=limit,
            worker=job.worker,
            record=None if decision == "give_back" else record,
            dead_lettered=decision == "dead_letter",
            then=then,
            batch=batch,
        )

    def release_worker(self, worker: str, *, but: Collection[UUID] = (), now: datetime | None = None) -> int:
        queues: set[str] = set()

        def give() -> int:
            with own_transaction(self._database):
                held = self._jobs.filter(state=RESERVED, worker=worker).exclude(id__in=but).order_by("id")
                rows = list(self._locking(held).values_list("id", "queue"))
                queues.update(queue for _id, queue in rows)
                back = self._jobs.filter(id__in=[job_id for job_id, _queue in rows])
                return back.update(**_UNRESERVED, state=READY, attempts=F("attempts") - 1)

        released = repeating(self._database, give)
        self._tell(queues)
        return released

    def lock(self, reservation: Reservation) -> bool:
        """Lock a reserved row to the end of the caller's transaction; False when the reservation was lost.

        The lock is the lease of an atomic job: renewal, rescue and cancelling skip locked rows.
        """
        own = self._jobs.filter(id=reservation.id, token=reservation.token)
        if not connections[self._database].features.has_select_for_update:
            return bool(own.update(format=F("format")))  # SQLite locks by its first write
        return own.select_for_update().values_list("id").first() is not None

    def bury(self, reservation: Reservation, record: AttemptRecord, *, now: datetime | None = None) -> None:
        """Keep a dead letter of a job that has left the queue already."""
        held = reservation
        job = Job(
            id=held.id,
            queue=held.queue,
            name=held.name,
            payload=held.payload,
            format=held.format,
            rank=held.rank,
            max_attempts=held.max_attempts,
            metadata=held.metadata,
            masked=held.masked,
            created_at=held.created_at,  # type: ignore[misc]
            attempts=held.attempt,
        )
        self.dead_letters.add([(job, record)], now)

    # What people do

    def cancel(
        self, job_id: UUID, *, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> JobRecord | None:
        def remove() -> JobRecord | None:
            with own_transaction(self._database):
                job = self._locking(self._jobs.filter(id=job_id).exclude(state=RESERVED)).first()
                if job is None:
                    return None
                if job.flow is not None:
                    self.batches.mark([job.id], CANCELLED)
                if seconds := keep_for(job.name):
                    self.results.add_cancelled([job.id], seconds, now)
                self._jobs.filter(id=job.id).delete()
                return self._job_record(job)

        return repeating(self._database, remove)

    def clear(self, queue: str, *, limit: int, keep_for: KeepFor = keep_nothing, now: datetime | None = None) -> int:
        waiting = self._jobs.filter(queue=queue).exclude(state=RESERVED).order_by("id")

        def remove() -> int:
            with own_transaction(self._database):
                return self._cancel_jobs(waiting, limit, keep_for, now)

        return repeating(self._database, remove)

    def _cancel_jobs(self, waiting: QuerySet[Job], limit: int, keep_for: KeepFor, now: datetime | None) -> int:
        """Remove jobs that are not reserved, as cancelled; return how many."""
        rows = list(self._locking(waiting).values_list("id", "name")[:limit])
        ids = [job_id for job_id, _name in rows]
        self.batches.mark(ids, CANCELLED)
        kept: dict[float, list[UUID]] = {}
        for job_id, name in rows:
            kept.setdefault(keep_for(name), []).append(job_id)
        for seconds, some in kept.items():
            if seconds:
                self.results.add_cancelled(some, seconds, now)
        return self._jobs.filter(id__in=ids).delete()[0]

    def get(self, job_id: UUID) -> JobRecord | None:
        job = self._jobs.filter(id=job_id).first()
        return self._job_record(job) if job is not None else self.dead_letters.get(job_id)

    def peek(self, queue: str, *, limit: int) -> list[JobRecord]:
        ready = self._jobs.filter(queue=queue, state=READY).order_by("rank", "ready_at", "id")
        return [self._job_record(job) for job in ready[:limit]]

    def waiting(self, queue: str, *, limit: int) -> list[JobRecord]:
        ready = self.peek(queue, limit=limit)
        scheduled = self._jobs.filter(queue=queue, state=SCHEDULED).order_by("available_at")
        return [*ready, *map(self._job_record, scheduled[: limit - len(ready)])]

    def sizes(self, *, now: datetime | None = None) -> dict[str, QueueSize]:
        counted = self._jobs.order_by().values("queue", "state").annotate(count=Count("id"), first=Min("ready_at"))
        moment = now or self._now()
        found: dict[str, dict[str, Any]] = {}
        for row in counted:
            numbers = found.setdefault(row["queue"], {})
            numbers[row["state"]] = row["count"]
            if row["state"] == READY:
                numbers["oldest"] = max(0.0, (moment - row["first"]).total_seconds())
        for queue, count in self.dead_letters.counts().items():
            found.setdefault(queue, {})["failed"] = count
        return {queue: QueueSize(**found[queue]) for queue in sorted(found)}

    def slowdowns(self) -> list[str]:
        try:
            return slowdowns(connections[self._database], Job._meta.db_table)
        except DatabaseError:  # the role may not look at others' sessions
            return []

    # Dead letters

    def retry(self, retry_for: Mapping[int, float | None], *, now: datetime | None = None) -> set[int]:
        retried = repeating(self._database, lambda: self.dead_letters.retry(retry_for, now))
        self._tell(retried.values())
        return set(retried)

    # Results

    def get_result(self, job_id: UUID, *, now: datetime | None = None) -> ResultRecord | None:
        return self.results.get(job_id, now)

    def prune_results(self, *, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        return self.results.prune(limit, now)

    # Batches

    def create_batch(self, batch: NewBatch, job_ids: Sequence[UUID], *, now: datetime | None = None) -> None:
        self.batches.create(batch, job_ids, now)

    def join_batch(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        return self.batches.join(batch_id, job_ids)

    def close_batch(self, batch_id: UUID, *, now: datetime | None = None) -> ClosedBatch | None:
        def look() -> bool:
            with own_look(self._database):
                return self.batches.has_pending(batch_id)

        def close() -> ClosedBatch | None:
            with own_transaction(self._database):
                closed = self.batches.close(batch_id, now)
                if closed is None:
                    return None
                record, then = closed
                if then:
                    self._insert(then, now)
                return ClosedBatch(record, then)

        if repeating(self._database, look):
            return None
        closed = repeating(self._database, close)
        if closed is not None:
            self._tell({job.queue for job in closed.then if is_ready_at_once(job)})
        return closed

    def sweep_batches(
        self, *, limit: int = SWEEP_LIMIT, keep_for: KeepFor = keep_nothing, now: datetime | None = None
    ) -> list[ClosedBatch]:
        def cancelled() -> list[UUID]:
            with own_look(self._database):
                return self.batches.cancelled_and_open(limit)

        def over() -> list[UUID]:
            with own_look(self._database):
                return self.batches.over(limit)

        for batch_id in repeating(self._database, cancelled):
            self.cancel_batch(batch_id, keep_for=keep_for, now=now)
        closed = [self.close_batch(batch_id, now=now) for batch_id in repeating(self._database, over)]
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
        members = self.batches.pending(batch_id).values("job_id")
        waiting = self._jobs.filter(id__in=members).exclude(state=RESERVED).order_by("id")

        def remove() -> int:
            with own_transaction(self._database):
                self.batches.note_cancelled(batch_id, now)
                return self._cancel_jobs(waiting, limit, keep_for, now)

        return repeating(self._database, remove)

    def prune_batches(self, *, older_than: float, limit: int = PRUNE_LIMIT, now: datetime | None = None) -> int:
        return self.batches.prune(older_than, limit, now)

    def problems(self) -> list[str]:
        connection = connections[self._database]
        if connection.vendor == "sqlite" and connection.settings_dict["NAME"] == ":memory:":
            return [
                f"The database {self._database!r} is an in-memory SQLite, which no other thread or process sees; "
                "give DATABASES a file name."
            ]
        return missing_tables(self._database, _MODELS, self.outages)

    # Waiting

    def listen(self, waiter: Waiter, queues: Collection[str] | None = None) -> None:
        with self._listening:
            super().listen(waiter, queues)
            if self._listener is None and self.notifies and can_listen(connections[self._database]):
                self._listener = Listener(self._database, self.wake_listeners)
                self._listener.start()

    def unlisten(self, waiter: Waiter) -> None:
        with self._listening:
            super().unlisten(waiter)
            if self._listener is not None and not self.has_listeners:
                self._listener.stop()
                self._listener = None

    def _tell(self, queues: Collection[str]) -> None:
        """That jobs of these queues are ready; nobody is told where nobody could hear it."""
        notifies = self.notifies and connections[self._database].vendor == "postgresql"
        if queues and (notifies or self.has_listeners):
            self._hints.tell(queues, notifies=notifies)

    # Details

    @property
    def _has_statements_of_postgresql(self) -> bool:
        return self.uses_vendor_forms and connections[self._database].vendor == "postgresql"

    @property
    def _skips_locked(self) -> bool:
        return connections[self._database].features.has_select_for_update_skip_locked

    @property
    def _returns_deleted(self) -> bool:
        """Django has no flag for DELETE … RETURNING; where INSERT … RETURNING works, so does this."""
        return connections[self._database].features.can_return_rows_from_bulk_insert

    def is_busy(self, error: BaseException) -> bool:
        return is_conflict(error)

    def in_transaction(self) -> bool:
        return connections[self._database].in_atomic_block

    def session(self) -> int | None:
        connection = connections[self._database]
        raw: Any = connection.connection
        if raw is None:
            return None
        if connection.vendor == "postgresql":
            return int(raw.info.backend_pid)
        return int(raw.thread_id()) if connection.vendor == "mysql" else None

    def end_session(self, session: int | None) -> None:
        statement = _END_SESSION.get(connections[self._database].vendor)
        if session is not None and statement is not None:
            with connections[self._database].cursor() as cursor:
                cursor.execute(statement, [session])

    def close(self) -> None:
        connections[self._database].close()

    def _now(self) -> datetime:
        connection = connections[self._database]
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {store_now_sql(connection.vendor)}")
            return from_microseconds(int(cursor.fetchone()[0]))

    def _any(self, rows: QuerySet[Job]) -> bool:
        """Whether there is a row to deal with; often the first statement after a long wait, so repeated too."""

        def look() -> bool:
            with own_look(self._database):
                return bool(rows.values("id")[:1])

        return repeating(self._database, look)

    def _locked_ids(self, rows: QuerySet[Job], limit: int | None) -> list[UUID]:
        """The ids of rows that nobody else holds, locked; on SQLite our transaction has locked everything."""
        return list(self._locking(rows).values_list("id", flat=True)[:limit])

    def _locking(self, rows: QuerySet[Job]) -> QuerySet[Job]:
        return rows.select_for_update(skip_locked=self._skips_locked)

    def _lock_owned(self, ids: Collection[UUID], token: UUID) -> list[UUID]:
        own = self._jobs.filter(id__in=ids, token=token).order_by("id")
        return list(own.select_for_update().values_list("id", flat=True))

    def _delete_owned(self, ids: list[UUID], token: UUID) -> set[UUID]:
        """Delete the reservations that are still ours, in one statement where the database can say which."""
        connection = connections[self._database]
        if not self._returns_deleted:
            owned = self._lock_owned(ids, token)
            self._jobs.filter(id__in=owned).delete()
            return set(owned)
        if connection.vendor == "postgresql" and len(ids) > 1:
            among, params = "= ANY (%s::uuid[])", [postgresql.uuid_array(ids), token]
        else:
            among = f"IN ({', '.join(['%s'] * len(ids))})"
            params = [uuid_parameter(value, connection.vendor) for value in (*ids, token)]
        return self._ids_of(f"DELETE FROM django_jobqueue_job WHERE id {among} AND token = %s RETURNING id", params)  # noqa: S608

    def _job_record(self, job: Job) -> JobRecord:
        return JobRecord(
            id=job.id,
            connection=self.alias,
            queue=job.queue,
            name=job.name,
            state=job.state,
            payload=job.payload,
            format=job.format,
            priority=-job.rank,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            created_at=job.created_at,
            available_at=job.available_at,
            ready_at=job.ready_at,
            reserved_at=job.reserved_at,
            reserved_until=job.reserved_until,
            worker=job.worker,
            errors=AttemptHistory.read(job.errors),
            metadata=job.metadata,
            masked=job.masked,
            flow=job.flow,
            retries=job.retries,
            batch=batch_of(job.flow),
        )


_MODELS = (Job, FailedJob, Result, Batch, BatchMember, Progress)

_END_SESSION = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}

_UNRESERVED: dict[str, Any] = {"token": None, "worker": "", "alone": False, "reserved_at": None, "reserved_until": None}


class _Asked(NamedTuple):
    """What a reserve was asked for."""

    queue: str
    worker: str
    limit: ReserveLimit
    retry_after: float
    after: Position | None
    now: datetime | None


def _queues_one_by_one(cursor: CursorWrapper) -> Iterator[str]:
    name = ""
    while True:
        cursor.execute(_NEXT_QUEUE_SQL, [name])
        (name,) = cursor.fetchone()
        if name is None:
            return
        yield name


def _key(held: Reservation) -> tuple[UUID, UUID]:
    return held.id, held.token


def _candidate(row: Sequence[Any]) -> Candidate:
    return Candidate(name=row[1], attempts=row[5], max_attempts=row[6], crashes=row[8])


def _by_token(reservations: Collection[Reservation]) -> list[tuple[UUID, list[UUID]]]:
    """The ids of each reserve, sorted, so that two transactions lock rows in one order."""
    ordered = sorted(reservations, key=lambda held: (held.token, held.id))
    return [(token, [held.id for held in group]) for token, group in groupby(ordered, key=attrgetter("token"))]
