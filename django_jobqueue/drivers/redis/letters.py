"""Dead letters of jobs in Redis: rows of the connection's database, written before the job leaves Redis.

Two stores cannot commit together, so that after a crash a job may be in both. The number of retries tells which is
the later: a row with as many as the job is of this very end, and the job goes; with fewer it was retried, and only
the row was left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import DataError, IntegrityError

from ...jobs.errors import MAX_CLASS, MAX_MESSAGE, shortened, storable
from ...jobs.names import MAX_JOB_NAME, MAX_QUEUE_NAME
from ...jobs.records import AttemptHistory, AttemptRecord, NewJob
from ...jobs.times import from_microseconds
from ...models import FailedJob, Job
from ...models.fields import store_clock
from ..dead_letters import DeadLetters, letter_bytes
from ..transactions import own_transaction, repeating
from .form import Body, Form, Places, job_arguments, read_id

logger = logging.getLogger("django_jobqueue")

UNREADABLE_NAME = "unreadable"
UNREADABLE_CLASS = "django_jobqueue.drivers.redis.form.Unreadable"
MOST_SHOWN = 100_000
# Bytes of one row: more than anybody dispatches, and half of what MySQL takes at most, where quotes are doubled. Beyond
# it the database looks as if it were down.
MOST_KEPT = 8_000_000
# The database, or its client library, does not take the text: it never will.
REFUSALS = (DataError, IntegrityError, ValueError)


class Returning:
    """A row on its way back into Redis."""

    def __init__(self, row: FailedJob, retry_for: float | None) -> None:
        self._row = row
        self._retry_for = retry_for

    @property
    def job_id(self) -> UUID:
        job_id: UUID = self._row.job_id
        return job_id

    @property
    def size(self) -> int:
        return letter_bytes(self._row)

    def arguments(self, places: Places, left: str | None) -> list[str | int]:
        """Of the script that stores it, ready now with no attempt used.

        ``left`` is the flow of the job that a crash has left in Redis beside the row: its catch has not had its turn.
        """
        row = self._row
        job = NewJob(
            id=row.job_id,
            name=row.name,
            queue=row.queue,
            payload=row.payload,
            format=row.format,
            rank=row.rank,
            max_attempts=row.max_attempts,
            retry_for=self._retry_for,
            metadata=row.metadata,
            masked=row.masked,
            flow=row.flow if left is None else left,
        )
        errors = AttemptHistory.read(row.errors)
        return job_arguments(job, places, created_at=row.created_at, retries=row.retries + 1, errors=errors)


class RedisLetters(DeadLetters):
    def store(self, jobs: Sequence[tuple[Job, AttemptRecord]], now: datetime) -> set[UUID]:
        """Keep the jobs in a transaction of their own; return the ids of those that are kept.

        A letter of the same life of a job is somebody else's, who may end the job by it, while one of us was stopped.
        It stays, as of a moment that is nobody's, so that nobody takes it back.
        One that the database refuses stands in nobody's way: it is kept alone, in plain ASCII. What it refuses even
        so is logged.
        """
        if not jobs:
            return set()
        try:
            return self._store_all(jobs, now)
        except REFUSALS:
            if len(jobs) > 1:
                return set().union(*(self.store([pair], now) for pair in jobs))
        (job, record) = jobs[0]
        try:
            return self._store_all([_in_ascii(job, record)], now)
        except REFUSALS:
            logger.exception("The dead letter of the job %s cannot be stored.", job.id)
            return set()

    def _store_all(self, jobs: Sequence[tuple[Job, AttemptRecord]], now: datetime) -> set[UUID]:
        fitting = [(job, replace(record, message=_message(record.message))) for job, record in jobs]
        retries = {job.id: job.retries for job, _ in jobs}
        letters = FailedJob.objects.using(self.database)
        columns = ("id", "job_id", "connection", "retries")

        def write() -> None:
            with own_transaction(self.database):
                shared, older = set(), []
                for number, job_id, connection, count in letters.filter(job_id__in=retries).values_list(*columns):
                    if connection == self.connection and count >= retries[job_id]:
                        shared.add(job_id)
                    else:
                        older.append(number)
                # What comes after this look is refused as a second row, and found by the next one.
                letters.filter(id__in=older).delete()
                self.insert([pair for pair in fitting if pair[0].id not in shared], now)
                if shared:
                    letters.filter(job_id__in=shared).update(failed_at=store_clock(now, plus=1))

        repeating(self.database, write)
        return set(retries)

    def take_back(self, forms: Iterable[Form], stored_at: datetime) -> None:
        """Delete the dead letters that were stored at this moment for jobs that are somebody else's."""
        for form in forms:
            rows = self._rows.filter(job_id=form.id, retries=form.retries, failed_at=store_clock(stored_at))
            repeating(self.database, rows.delete)

    def settled_before(self, forms: Collection[Form], now: datetime) -> dict[UUID, AttemptRecord]:
        """Which of these jobs have their dead letter, and its error; rows that a retry has left are deleted.

        A letter is of this moment from here on: who stored it may be alive, and would take it back for having lost the
        job. Who did so before leaves the job to us.
        """
        if not forms:
            return {}
        retries = {form.id: form.retries for form in forms}
        columns = ("id", "job_id", "retries", "attempts", "exception_class", "exception_message")
        found = {}
        for number, job_id, count, attempts, exception_class, message in self._rows.filter(
            job_id__in=retries
        ).values_list(*columns):
            row = self._rows.filter(id=number)
            if count < retries[job_id]:
                repeating(self.database, row.delete)
            elif repeating(self.database, partial(row.update, failed_at=store_clock(now))):
                found[job_id] = _error(attempts, exception_class, message)
        return found

    def put_back(
        self, retry_for: Mapping[int, float | None], push: Callable[[list[Returning]], None]
    ) -> dict[int, str]:
        """Push rows, then delete them; return the queue of each number that was there.

        The row lock makes two people who retry at once into one. A crash in between leaves a row of a job that
        runs again: retried once more it may run twice, and never not at all.
        """

        def move() -> dict[int, str]:
            with own_transaction(self.database):
                rows = list(self._rows.filter(id__in=retry_for).order_by("id").select_for_update())
                push([Returning(row, retry_for[row.pk]) for row in rows])
                self._rows.filter(id__in=[row.pk for row in rows]).delete()
            return {row.pk: row.queue for row in rows}

        return repeating(self.database, move)


def _error(number: int, exception_class: str, message: str) -> AttemptRecord:
    return AttemptRecord(
        number=number, worker="", started="", waited=0.0, ran=0.0, exception_class=exception_class, message=message
    )


def _message(text: str) -> str:
    """That of a lost worker has its name, which came from Redis."""
    return shortened(storable(text), MAX_MESSAGE)


def _in_ascii(job: Job, record: AttemptRecord) -> tuple[Job, AttemptRecord]:
    """The same with every other character as an escape, and cut where it is longer than anybody reads."""
    plain = copy(job)
    plain.queue = _ascii(job.queue)[:MAX_QUEUE_NAME]
    plain.name = _ascii(job.name)[:MAX_JOB_NAME]
    plain.payload = shortened(_ascii(job.payload), MOST_SHOWN)
    plain.metadata = shortened(_ascii(job.metadata), MOST_SHOWN)
    plain.masked = _ascii(job.masked)
    plain.flow = None if job.flow is None else _ascii(job.flow)
    kind = _ascii(record.exception_class)[:MAX_CLASS]
    return plain, replace(record, message=_ascii(record.message), exception_class=kind)


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def dead_job(form: Form, body: Body, errors: AttemptHistory) -> Job:
    """As ``DeadLetters.add`` takes it: never saved."""
    history = errors.write()
    texts = [body.payload, body.metadata, body.masked, body.flow or "", history]
    fits = sum(len(text.encode(errors="replace")) for text in texts) <= MOST_KEPT

    def kept(text: str) -> str:
        return text if fits else shortened(text, MOST_SHOWN)

    return Job(
        id=form.id,
        queue=form.queue,
        name=form.name,
        payload=kept(body.payload),
        format=form.format,
        rank=form.rank,
        max_attempts=form.max_attempts,
        metadata=kept(body.metadata),
        masked=kept(body.masked),
        flow=None if body.flow is None else kept(body.flow),
        created_at=from_microseconds(form.created_at),  # type: ignore[misc]
        attempts=form.attempts,
        retries=form.retries,
        errors=kept(history),
    )


def unreadable_job(field: bytes, found: bytes, now: datetime) -> tuple[Job, AttemptRecord]:
    """A dead letter that shows the bytes of what was set aside; the same bytes are the same letter."""
    queue = found.partition(b"\n")[0]
    try:
        job_id = read_id(field)
    except ValueError:
        job_id = uuid5(NAMESPACE_OID, repr(field + found))
    shown = escaped(field + b"\n" + found)[:MOST_SHOWN]
    job = Job(
        id=job_id,
        queue=storable(queue.decode(errors="backslashreplace"))[:MAX_QUEUE_NAME],
        name=UNREADABLE_NAME,
        payload=shown,
        format=0,
        rank=0,
        created_at=now,  # type: ignore[misc]
    )
    message = "Redis held something in this queue that is no job; the payload shows its bytes, escaped."
    record = AttemptRecord(
        number=0,
        worker="",
        started=now.isoformat(),
        waited=0.0,
        ran=0.0,
        exception_class=UNREADABLE_CLASS,
        message=message,
    )
    return job, record


def unreadable_body(found: bytes) -> Body:
    return Body(payload=escaped(found)[:MOST_SHOWN], metadata="", masked="")


def escaped(value: bytes) -> str:
    """Printable ASCII as it is, every other byte as ``\\xff``."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in value)
