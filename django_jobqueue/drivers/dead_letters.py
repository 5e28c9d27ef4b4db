"""Dead letters in the database, for every driver that has one: keeping, finding, retrying, forgetting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connections
from django.db.models import CharField, Count, Func, Max, QuerySet, TextField, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast

from ..jobs.chunks import cut
from ..jobs.errors import FINGERPRINT_VERSION, fingerprint
from ..jobs.flows import uncaught
from ..jobs.records import FAILED, READY, AttemptHistory, AttemptRecord, FailedSummary, JobRecord
from ..jobs.times import microseconds
from ..models import BatchMember, FailedJob, Job
from ..models.batch import PENDING
from ..models.fields import clock_sql, store_clock
from .base import Driver
from .inserts import copy_rows
from .transactions import own_transaction, repeating


class DeadLetters:
    """The rows of one connection in the FailedJob table of ``database``."""

    def __init__(self, connection: str, database: str) -> None:
        self.connection = connection
        self.database = database

    @property
    def _rows(self) -> QuerySet[FailedJob]:
        return FailedJob.objects.using(self.database).filter(connection=self.connection)

    def add(self, jobs: Sequence[tuple[Job, AttemptRecord]], now: datetime | None) -> None:
        """Keep jobs with the record of their last attempt; the caller's transaction removes them from the queue."""
        # A dispatch that was repeated after an unclear commit may have brought a dead job back: its last end counts.
        FailedJob.objects.using(self.database).filter(job_id__in=[job.id for job, _ in jobs]).delete()
        self.insert(jobs, now)

    def insert(self, jobs: Sequence[tuple[Job, AttemptRecord]], now: datetime | None) -> None:
        """As ``add``, for jobs that have no row; raises IntegrityError for one that has."""
        rows = []
        for job, record in jobs:
            mark = fingerprint(job.name, record.exception_class, record.message, record.traceback)
            rows.append(
                FailedJob(
                    job_id=job.id,
                    connection=self.connection,
                    queue=job.queue,
                    name=job.name,
                    payload=job.payload,
                    format=job.format,
                    rank=job.rank,
                    max_attempts=job.max_attempts,
                    metadata=job.metadata,
                    masked=job.masked,
                    flow=uncaught(job.flow),
                    created_at=job.created_at,
                    exception_class=record.exception_class,
                    exception_message=record.message,
                    fingerprint=mark,
                    fingerprint_version=FINGERPRINT_VERSION,
                    errors=AttemptHistory.read(job.errors).plus(record).write(),
                    attempts=job.attempts,
                    retries=job.retries,
                    failed_at=store_clock(now),
                )
            )
        for chunk in cut(rows, letter_bytes):
            FailedJob.objects.using(self.database).bulk_create(chunk)

    def get(self, job_id: UUID) -> JobRecord | None:
        row = self._rows.filter(job_id=job_id).first()
        if row is None:
            return None
        return JobRecord(
            id=row.job_id,
            connection=row.connection,
            queue=row.queue,
            name=row.name,
            state=FAILED,
            payload=row.payload,
            format=row.format,
            priority=-row.rank,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            created_at=row.created_at,
            available_at=row.created_at,
            errors=AttemptHistory.read(row.errors),
            metadata=row.metadata,
            masked=row.masked,
            flow=row.flow,
            number=row.pk,
            exception_class=row.exception_class,
            exception_message=row.exception_message,
            retries=row.retries,
            failed_at=row.failed_at,
        )

    def find(
        self,
        *,
        numbers: Collection[int] | None,
        job_id: UUID | None,
        ending: str | None,
        queue: str | None,
        up_to: int | None,
        after: int,
        newest_first: bool,
        limit: int,
    ) -> list[FailedSummary]:
        rows = self._rows.filter(id__gt=after)
        if numbers is not None:
            rows = rows.filter(id__in=numbers)
        if job_id is not None:
            rows = rows.filter(job_id=job_id)
        if ending is not None:
            ending = ending.replace("-", "").lower()
            if not ending:
                return []
            rows = rows.annotate(_id_text=_id_text()).filter(_id_text__endswith=ending)
        if queue is not None:
            rows = rows.filter(queue=queue)
        if up_to is not None:
            rows = rows.filter(id__lte=up_to)
        columns = (
            "id",
            "job_id",
            "connection",
            "queue",
            "name",
            "attempts",
            "max_attempts",
            "exception_class",
            "exception_message",
            "retries",
            "failed_at",
        )
        found = rows.order_by("-id" if newest_first else "id").values_list(*columns)[:limit]
        return [FailedSummary(**dict(zip(("number", "id", *columns[2:]), row, strict=True))) for row in found]

    def count(self, queue: str | None) -> int:
        return (self._rows if queue is None else self._rows.filter(queue=queue)).count()

    def counts(self) -> dict[str, int]:
        counted = self._rows.order_by().values("queue").annotate(count=Count("id"))
        return {row["queue"]: row["count"] for row in counted}

    def last_number(self) -> int:
        return self._rows.aggregate(last=Max("id"))["last"] or 0

    def retry(self, retry_for: Mapping[int, float | None], now: datetime | None) -> dict[int, str]:
        """Move rows back in one transaction; return the queue of each number that was there.

        The row lock makes two people who retry at once into one. The database copies what it has already: each row may
        have a megabyte of arguments, and the tracebacks of many attempts.
        """
        with own_transaction(self.database):
            locked = self._rows.filter(id__in=retry_for).order_by("id").select_for_update()
            rows = list(locked.values_list("id", "job_id", "queue"))
            job_ids = [job_id for _number, job_id, _queue in rows]
            queued = set(Job.objects.using(self.database).filter(id__in=job_ids).values_list("id", flat=True))
            back = {number: job_id for number, job_id, _queue in rows if job_id not in queued}
            groups: dict[float | None, list[int]] = {}
            for number in back:
                groups.setdefault(retry_for[number], []).append(number)
            for seconds, some in groups.items():
                self._copy_back(some, seconds, now)
            BatchMember.objects.using(self.database).filter(job_id__in=back.values()).update(state=PENDING)
            self._rows.filter(id__in=[number for number, *_ in rows]).delete()
        return {number: queue for number, _job_id, queue in rows}

    def _copy_back(self, numbers: Sequence[int], retry_for: float | None, now: datetime | None) -> None:
        """Make jobs of dead letters, ready now, with no attempt used."""
        clock = clock_sql(connections[self.database].vendor, now)
        given = {
            "retry_until": f"{clock} + %s",
            "id": "job_id",
            "state": f"'{READY}'",
            "ready_at": clock,
            "available_at": clock,
            "attempts": "0",
            "exceptions": "0",
            "crashes": "0",
            "retries": "retries + 1",
            "token": "NULL",
            "worker": "''",
            "alone": "FALSE",
            "reserved_at": "NULL",
            "reserved_until": "NULL",
        }
        params = [None if retry_for is None else microseconds(retry_for)]
        copy_rows(self.database, FailedJob, Job, given, params, numbers)

    def forget(self, numbers: Collection[int]) -> set[int]:
        with own_transaction(self.database):
            rows = self._rows.filter(id__in=numbers).order_by("id").select_for_update()
            found = set(rows.values_list("id", flat=True))
            self._rows.filter(id__in=found).delete()
        return found


class DeadLetterDriver(Driver):
    """A driver whose dead letters are rows: what is the same for each."""

    dead_letters: DeadLetters

    def failed(
        self,
        *,
        numbers: Collection[int] | None = None,
        job_id: UUID | None = None,
        ending: str | None = None,
        queue: str | None = None,
        up_to: int | None = None,
        after: int = 0,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[FailedSummary]:
        return self.dead_letters.find(
            numbers=numbers,
            job_id=job_id,
            ending=ending,
            queue=queue,
            up_to=up_to,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )

    def failed_count(self, *, queue: str | None = None) -> int:
        return self.dead_letters.count(queue)

    def last_failed_number(self) -> int:
        return self.dead_letters.last_number()

    def forget(self, numbers: Iterable[int]) -> set[int]:
        wanted = list(numbers)
        return repeating(self.dead_letters.database, lambda: self.dead_letters.forget(wanted))


def letter_bytes(row: FailedJob) -> int:
    return len(row.payload) + len(row.metadata) + len(row.masked) + len(row.flow or "") + len(row.errors)


def _id_text() -> Combinable:
    """A UUID as 32 hexadecimal digits on every database."""
    text = Cast("job_id", TextField())
    return Func(text, Value("-"), Value(""), function="REPLACE", output_field=CharField())
