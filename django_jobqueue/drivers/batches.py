"""Batches in the database: who is a member, and the one statement that ends a batch.

Members leave in the transaction that ends their job. Whether that was the last one is asked after its commit, in a
transaction of its own: two that end at once would each still see the other, and neither would end the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Count, Exists, F, OuterRef, QuerySet

from ..jobs.flows import read_callbacks
from ..jobs.records import BatchRecord, NewBatch, NewJob
from ..jobs.times import microseconds
from ..models import Batch, BatchMember
from ..models.batch import CANCELLED, FAILED, PENDING
from ..models.fields import store_clock, uuid_parameter
from .postgresql import uuid_array
from .pruning import delete_first

# Of one statement, where a database takes no array: ids as a part of the text cost less than as parameters.
CHUNK_ROWS = 1000

# From the end of its index, where those stand that were stored last: forwards PostgreSQL would pass all who have just
# left. It does so for equality too, whatever the order asked for.
_ANY_PENDING = (
    "SELECT 1 FROM django_jobqueue_batchmember "  # noqa: S608
    f"WHERE batch_id = %s AND state BETWEEN {PENDING} AND {PENDING} ORDER BY state DESC LIMIT 1"
)


class Batches:
    """The batches of one connection in ``database``."""

    def __init__(self, connection: str, database: str) -> None:
        self.connection = connection
        self.database = database

    @property
    def _rows(self) -> QuerySet[Batch]:
        return Batch.objects.using(self.database).filter(connection=self.connection)

    @property
    def members(self) -> QuerySet[BatchMember]:
        return BatchMember.objects.using(self.database)

    def pending(self, batch_id: UUID) -> QuerySet[BatchMember]:
        return self.members.filter(batch_id=batch_id, state=PENDING)

    def has_pending(self, batch_id: UUID) -> bool:
        """Asked after each settle of members, and so written by hand."""
        connection = connections[self.database]
        with connection.cursor() as cursor:
            cursor.execute(_ANY_PENDING, [uuid_parameter(batch_id, connection.vendor)])
            return cursor.fetchone() is not None

    # Membership, in the caller's transaction

    def create(self, batch: NewBatch, job_ids: Sequence[UUID], now: datetime | None) -> None:
        created_at: Any = store_clock(now)
        row = Batch(
            id=batch.id,
            connection=self.connection,
            name=batch.name,
            metadata=batch.metadata,
            allow_failures=batch.allow_failures,
            callbacks=batch.callbacks,
            total=len(job_ids),
            created_at=created_at,
        )
        Batch.objects.using(self.database).bulk_create([row])
        self._insert(batch.id, job_ids)

    def join(self, batch_id: UUID, job_ids: Sequence[UUID]) -> bool:
        """The lock of the batch's row keeps it open until the new members are committed."""
        is_open = self._rows.filter(id=batch_id, finished_at=None, cancelled_at=None)
        if not is_open.update(total=F("total") + len(job_ids)):
            return False
        self._insert(batch_id, job_ids)
        return True

    def _insert(self, batch_id: UUID, job_ids: Sequence[UUID]) -> None:
        connection = connections[self.database]
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(
                    "INSERT INTO django_jobqueue_batchmember (job_id, batch_id, state) "
                    "SELECT job_id, %s, %s FROM unnest(%s::uuid[]) AS new (job_id)",
                    [batch_id, PENDING, uuid_array(job_ids)],
                )
                return
            batch = batch_id.hex
            for start in range(0, len(job_ids), CHUNK_ROWS):
                chunk = job_ids[start : start + CHUNK_ROWS]
                rows = ", ".join([f"('{job_id.hex}', '{batch}', {PENDING})" for job_id in chunk])
                cursor.execute(f"INSERT INTO django_jobqueue_batchmember (job_id, batch_id, state) VALUES {rows}")  # noqa: S608

    def leave(self, job_ids: Collection[UUID]) -> None:
        """Jobs that were no members may be among them."""
        connection = connections[self.database]
        ids = list(job_ids)
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(
                    "DELETE FROM django_jobqueue_batchmember WHERE job_id = ANY (%s::uuid[])", [uuid_array(ids)]
                )
                return
            for start in range(0, len(ids), CHUNK_ROWS):
                chunk = ", ".join([f"'{job_id.hex}'" for job_id in ids[start : start + CHUNK_ROWS]])
                cursor.execute(f"DELETE FROM django_jobqueue_batchmember WHERE job_id IN ({chunk})")  # noqa: S608

    def move(self, job_id: UUID, next_id: UUID) -> None:
        """The next step of a chain is the member in the place of the one before."""
        self.members.filter(job_id=job_id).update(job_id=next_id)

    def mark(self, job_ids: Collection[UUID], state: int) -> None:
        self.members.filter(job_id__in=job_ids).update(state=state)

    # The end

    def close(self, batch_id: UUID, now: datetime | None) -> tuple[BatchRecord, tuple[NewJob, ...]] | None:
        """Mark a batch as finished when no member is pending; the caller's transaction stores its callbacks.

        Its row is locked by a statement before, so that the look at the members comes after whoever joined it.
        """
        row = self._rows.filter(id=batch_id, finished_at=None).select_for_update().first()
        is_over = self._rows.filter(~Exists(self.pending(batch_id)), id=batch_id, finished_at=None)
        if row is None or not is_over.update(finished_at=store_clock(now)):
            return None
        record = self.get(batch_id)
        return None if record is None else (record, read_callbacks(row.callbacks).at_the_end(record))

    def over(self, limit: int) -> list[UUID]:
        """Batches without a pending member that nobody has closed."""
        members = self.members.filter(batch_id=OuterRef("id"), state=PENDING)
        rows = self._rows.filter(~Exists(members), finished_at=None)
        return list(rows.order_by("id").values_list("id", flat=True)[:limit])

    def cancelled_and_open(self, limit: int) -> list[UUID]:
        rows = self._rows.filter(finished_at=None, cancelled_at__isnull=False)
        return list(rows.order_by("id").values_list("id", flat=True)[:limit])

    def note_cancelled(self, batch_id: UUID, now: datetime | None) -> None:
        self._rows.filter(id=batch_id, finished_at=None, cancelled_at=None).update(cancelled_at=store_clock(now))

    # What people see

    def get(self, batch_id: UUID) -> BatchRecord | None:
        row = self._rows.filter(id=batch_id).first()
        if row is None:
            return None
        counted = self.members.filter(batch_id=batch_id).order_by().values("state").annotate(count=Count("job_id"))
        counts = {found["state"]: found["count"] for found in counted}
        return BatchRecord(
            id=row.id,
            connection=row.connection,
            name=row.name,
            metadata=row.metadata,
            allow_failures=row.allow_failures,
            total=row.total,
            pending=counts.get(PENDING, 0),
            failed=counts.get(FAILED, 0),
            cancelled=counts.get(CANCELLED, 0),
            created_at=row.created_at,
            finished_at=row.finished_at,
            cancelled_at=row.cancelled_at,
        )

    def prune(self, older_than: float, limit: int, now: datetime | None) -> int:
        """Delete at most ``limit`` batches that ended so many seconds ago, and those who were left in them."""
        ended = self._rows.filter(finished_at__lte=store_clock(now, -microseconds(older_than)))
        return delete_first(
            ended.order_by("finished_at"), limit, before=lambda ids: self.members.filter(batch_id__in=ids).delete()
        )
