"""What all databases have in common: the bench's own rows, its raw tables, and the raw loops.

Two raw tables: ``slim`` has what a queue cannot do without and one small index, and is the limit that targets are
held against; ``like`` is a copy of the queue's own table, with all its columns and indexes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_jobqueue.drivers import Driver
from django_jobqueue.models import Batch, BatchMember, FailedJob, Job, Result

from .. import rows
from ..rows import QUEUE

Table = Literal["slim", "like"]

QUEUES = ("bench-noop", "bench-each", "bench-atomic", "bench-kept", "bench-ms", "bench-mixed", QUEUE)
OWN_NAMES = "lab.jobs."
BATCH = 100
CHUNK = 1_000
NAMES: dict[Table, str] = {"slim": "jobqueue_bench_slim", "like": "jobqueue_bench_like"}


class Unsupported(Exception):
    """This store, or this machine, cannot do what a measurement needs; the text says why."""


class Store(ABC):
    """What holds the jobs of one connection; ``alias`` is the database of its rows, or of its dead letters.

    ``commits_are_of`` says whose commits ``commits()`` counts.
    """

    commits_are_of: ClassVar[str] = ""
    create_label: ClassVar[str] = "ORM create() of a like row"
    create_many_label: ClassVar[str] = "ORM bulk_create() of like rows"

    def __init__(self, driver: Driver) -> None:
        if driver.database is None:
            raise Unsupported(f"The connection {driver.alias!r} has no database.")
        self.driver = driver
        self.alias = driver.database

    @property
    @abstractmethod
    def vendor(self) -> str: ...

    @property
    def failed_jobs(self) -> QuerySet[FailedJob]:
        return FailedJob.objects.using(self.alias).filter(queue__in=QUEUES, connection=self.driver.alias)

    @abstractmethod
    def foreign(self) -> int:
        """How many jobs and dead letters of others are in the bench's queues."""

    @abstractmethod
    def left(self) -> int:
        """How many jobs have not left the store."""

    @abstractmethod
    def clean(self) -> None:
        """Remove what the bench has stored, and what its removal leaves behind."""

    @abstractmethod
    def forget_batch(self, batch_id: UUID) -> None:
        """Remove a batch that has ended, and none of others."""

    @abstractmethod
    def server(self) -> dict[str, str]:
        """Versions, and the settings that decide what a commit costs."""

    def commits(self) -> int | None:
        """A counter of commits, read when no other process of the bench runs; None where there is none."""
        return None

    def fresh_table(self) -> AbstractContextManager[dict[str, str]]:
        """An empty, never analyzed table for the jobs; yields the environment in which workers use it."""
        raise Unsupported("only PostgreSQL plans by statistics that a fresh table lacks")

    def analyze(self) -> None:
        """Give the planner the statistics of the table as it is."""
        raise Unsupported("only PostgreSQL is measured with and without statistics")

    def long_reader(self) -> AbstractContextManager[None]:
        """Another connection that holds a snapshot from now on."""
        raise Unsupported("nobody holds a snapshot of this store")

    # What ours is held against

    @abstractmethod
    def create(self, index: int) -> None:
        """Store one job like ours, without the queue."""

    @abstractmethod
    def create_many(self, jobs: int) -> None: ...

    @abstractmethod
    def raw_drain(self, jobs: int, table: Table, *, each: bool = False) -> float:
        """Reserve 100 and delete them, at once or ``each``, until all are gone; return jobs a second."""

    @abstractmethod
    def raw_insert(self, jobs: int) -> float:
        """Store jobs like the queue's own, a thousand at a time; return jobs a second."""

    def raw_pickup(self, samples: int, pause: Callable[[], None]) -> list[float]:
        """Milliseconds from before one insert, that a waiting connection is told of, to its reserve's return."""
        raise Unsupported("only PostgreSQL tells a waiting connection of an insert")


class Database(Store):
    slim_columns: ClassVar[str]

    @property
    def vendor(self) -> str:
        return connections[self.alias].vendor

    @property
    def jobs(self) -> QuerySet[Job]:
        """The rows of the bench."""
        return Job.objects.using(self.alias).filter(queue__in=QUEUES)

    def foreign(self) -> int:
        return (
            self.jobs.exclude(name__startswith=OWN_NAMES).count()
            + self.failed_jobs.exclude(name__startswith=OWN_NAMES).count()
        )

    def left(self) -> int:
        return self.jobs.exclude(queue=QUEUE).count() + self.failed_jobs.count()

    def clean(self) -> None:
        self.jobs.filter(name__startswith=OWN_NAMES).delete()
        self.failed_jobs.filter(name__startswith=OWN_NAMES).delete()
        Result.objects.using(self.alias).filter(name__startswith=OWN_NAMES).delete()
        self.tidy()

    def forget_batch(self, batch_id: UUID) -> None:
        BatchMember.objects.using(self.alias).filter(batch_id=batch_id).delete()
        Batch.objects.using(self.alias).filter(id=batch_id).delete()

    def tidy(self) -> None:
        """Let the table be as if the removed rows had never been there, as far as that goes."""
        return

    @contextmanager
    def long_reader(self) -> Iterator[None]:
        connection = self.another_connection()
        try:
            with connection.cursor() as cursor:
                self.take_snapshot(cursor)
                cursor.execute(f"SELECT COUNT(*) FROM {Job._meta.db_table}")
                cursor.fetchall()
                yield
                cursor.execute("ROLLBACK")
        finally:
            connection.close()

    @abstractmethod
    def take_snapshot(self, cursor: Any) -> None:
        """Begin a transaction that sees the database as it is now, to its end."""

    def another_connection(self) -> BaseDatabaseWrapper:
        return connections.create_connection(self.alias)

    def create(self, index: int) -> None:
        Job.objects.using(self.alias).create(**rows.fields(index))

    def create_many(self, jobs: int) -> None:
        Job.objects.using(self.alias).bulk_create(
            [Job(**rows.fields(index)) for index in range(jobs)], batch_size=CHUNK
        )

    # The raw limits

    def raw_drain(self, jobs: int, table: Table, *, each: bool = False) -> float:
        connection = self.connect()
        try:
            self._make_table(connection, table)
            self._fill(connection, table, jobs)
            self.analyze_raw(connection, NAMES[table])
            started, done = time.perf_counter(), 0
            while ids := self.reserve(connection, NAMES[table]):
                for batch in [[job_id] for job_id in ids] if each else [ids]:
                    self.delete(connection, NAMES[table], batch)
                done += len(ids)
            seconds = time.perf_counter() - started
        finally:
            self._drop_tables(connection)
            connection.close()
        if done != jobs:
            raise RuntimeError(f"The raw loop took {done} jobs of {jobs}.")
        return jobs / seconds

    def raw_insert(self, jobs: int) -> float:
        connection = self.connect()
        try:
            self._make_table(connection, "like")
            started = time.perf_counter()
            self._fill(connection, "like", jobs)
            return jobs / (time.perf_counter() - started)
        finally:
            self._drop_tables(connection)
            connection.close()

    def _make_table(self, connection: Any, table: Table) -> None:
        self._drop_tables(connection)
        if table == "like":
            self.copy_table(connection, NAMES[table])
        else:
            self.make_slim(connection, NAMES[table])

    def _drop_tables(self, connection: Any) -> None:
        for name in NAMES.values():
            self.execute(connection, f"DROP TABLE IF EXISTS {name}")

    def _fill(self, connection: Any, table: Table, jobs: int) -> None:
        if table == "like":
            constants = rows.constants(self.alias)
        else:
            constants = {"queue": QUEUE, "name": "noop", "state": "ready", "rank": 0, "ready_at": 0, "attempts": 0}
        for first in range(0, jobs, CHUNK):
            indexes = range(first, min(jobs, first + CHUNK))
            ids: Sequence[Any] = rows.job_ids(len(indexes)) if table == "like" else indexes
            self.insert(connection, NAMES[table], constants, ids, [rows.payload(index) for index in indexes])

    @abstractmethod
    def connect(self) -> Any:
        """A new connection of the driver library itself, in autocommit."""

    @abstractmethod
    def execute(self, connection: Any, statement: str) -> None: ...

    @abstractmethod
    def make_slim(self, connection: Any, name: str) -> None: ...

    @abstractmethod
    def copy_table(self, connection: Any, name: str) -> None:
        """An empty copy of the queue's table, with its indexes."""

    @abstractmethod
    def insert(
        self, connection: Any, name: str, constants: dict[str, Any], ids: Sequence[Any], payloads: list[str]
    ) -> None:
        """The fastest insert of one chunk that the library offers, in one commit."""

    @abstractmethod
    def analyze_raw(self, connection: Any, name: str) -> None: ...

    @abstractmethod
    def reserve(self, connection: Any, name: str) -> list[Any]:
        """Take the next hundred, with their payloads; return their ids."""

    @abstractmethod
    def delete(self, connection: Any, name: str, ids: list[Any]) -> None: ...
