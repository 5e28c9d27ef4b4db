"""PostgreSQL, by psycopg."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import UUID, uuid4

import psycopg
from django.db import connections
from psycopg import sql

from django_jobqueue.models import Job

from .base import BATCH, NAMES, QUEUE, Database, Unsupported

SCHEMA = "jobqueue_bench"
# What Django needs in a connection, and a bare one of psycopg does not.
DJANGO_PARAMETERS = {"context", "cursor_factory", "prepare_threshold"}
SETTINGS = ("fsync", "synchronous_commit", "shared_buffers", "wal_sync_method")
SETTLING_PAUSE, SETTLING_TRIES = 0.25, 20
LONGEST_SILENCE = 60.0

RESERVE = """
WITH first AS (
  SELECT id FROM {table} WHERE queue = %s AND state = 'ready'
  ORDER BY rank, ready_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED
)
UPDATE {table} AS job SET state = 'reserved', attempts = job.attempts + 1, token = %s,
  reserved_until = (EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint + 90000000
FROM first WHERE job.id = first.id RETURNING job.id, job.payload
"""


class PostgreSQL(Database):
    commits_are_of: ClassVar[str] = "this database"

    def server(self) -> dict[str, str]:
        with psycopg.connect(**self._parameters(), autocommit=True) as connection:
            found = connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (["server_version", *SETTINGS],)
            ).fetchall()
        values = dict(found)
        return {
            "server": f"PostgreSQL {values.pop('server_version')}",
            "library": f"psycopg {psycopg.__version__} ({psycopg.pq.__impl__})",
            **values,
        }

    def tidy(self) -> None:
        """Without ANALYZE: that a table has statistics is a measurement of its own."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(f"VACUUM {Job._meta.db_table}")

    def commits(self) -> int | None:
        """A session adds its commits up when it ends, and shortly after: read until nothing comes any more."""
        connections[self.alias].close()
        with psycopg.connect(**self._parameters(), autocommit=True) as connection:
            count = self._committed(connection)
            for _ in range(SETTLING_TRIES):
                time.sleep(SETTLING_PAUSE)
                before, count = count, self._committed(connection)
                if count - before <= 1:
                    break
        return count

    def _committed(self, connection: psycopg.Connection[Any]) -> int:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def fresh_table(self) -> Iterator[dict[str, str]]:
        """A table of the same name in a schema of the bench, which libpq lets every connection see first.

        Autovacuum is off in it: it would analyze a table of this size within a minute.
        """
        if connections[self.alias].settings_dict["OPTIONS"].get("options") or os.environ.get("PGOPTIONS"):
            raise Unsupported("the database's OPTIONS, or PGOPTIONS, set options already")
        table = Job._meta.db_table
        with psycopg.connect(**self._parameters(), autocommit=True) as connection:
            row = connection.execute("SHOW search_path").fetchone()
            path = f"{SCHEMA},{str(row[0]).replace(' ', '') if row else 'public'}"
            self._drop_schema(connection)
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
            connection.execute(
                f"CREATE TABLE {SCHEMA}.{table} (LIKE {table} INCLUDING ALL) WITH (autovacuum_enabled = false)"
            )
            try:
                with connections[self.alias].cursor() as cursor:
                    cursor.execute(f"SET search_path TO {path}")
                yield {"PGOPTIONS": f"-c search_path={path}"}
            finally:
                connections[self.alias].close()
                self._drop_schema(connection)

    def _drop_schema(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SET client_min_messages TO warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")

    def analyze(self) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(f"VACUUM ANALYZE {Job._meta.db_table}")

    def take_snapshot(self, cursor: Any) -> None:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def _parameters(self) -> dict[str, Any]:
        given = connections[self.alias].get_connection_params()
        return {name: value for name, value in given.items() if name not in DJANGO_PARAMETERS}

    # The raw limits

    def connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._parameters(), autocommit=True)
        connection.execute("SET client_min_messages TO warning")
        return connection

    def execute(self, connection: psycopg.Connection[Any], statement: str) -> None:
        connection.execute(statement)  # type: ignore[call-overload]

    def make_slim(self, connection: psycopg.Connection[Any], name: str) -> None:
        self.execute(
            connection,
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, queue text NOT NULL, name text NOT NULL, "
            "payload text NOT NULL, state varchar(9) NOT NULL, rank smallint NOT NULL, ready_at bigint NOT NULL, "
            "attempts int NOT NULL, token uuid, reserved_until bigint)",
        )
        self.execute(
            connection, f"CREATE INDEX {name}_ready ON {name} (queue, rank, ready_at, id) WHERE state = 'ready'"
        )

    def copy_table(self, connection: psycopg.Connection[Any], name: str) -> None:
        self.execute(connection, f"CREATE TABLE {name} (LIKE {Job._meta.db_table} INCLUDING ALL)")

    def insert(
        self,
        connection: psycopg.Connection[Any],
        name: str,
        constants: dict[str, Any],
        ids: Sequence[Any],
        payloads: list[str],
    ) -> None:
        # Constants are literals: a parameter of a SELECT list is text, which no number column takes.
        statement = sql.SQL(
            "INSERT INTO {table} (id, payload, {columns}) "
            "SELECT new.id, new.payload, {values} FROM unnest(%s::{kind}[], %s::text[]) AS new (id, payload)"
        ).format(
            table=sql.Identifier(name),
            columns=sql.SQL(", ").join(map(sql.Identifier, constants)),
            values=sql.SQL(", ").join(map(sql.Literal, constants.values())),
            kind=sql.SQL("uuid" if isinstance(ids[0], UUID) else "bigint"),
        )
        connection.execute(statement, (list(ids), payloads))

    def analyze_raw(self, connection: psycopg.Connection[Any], name: str) -> None:
        self.execute(connection, f"VACUUM ANALYZE {name}")

    def reserve(self, connection: psycopg.Connection[Any], name: str) -> list[Any]:
        statement = RESERVE.format(table=name, batch=BATCH)
        return [row[0] for row in connection.execute(statement, (QUEUE, uuid4())).fetchall()]  # type: ignore[call-overload]

    def raw_pickup(self, samples: int, pause: Callable[[], None]) -> list[float]:
        started: list[int] = []
        with self.connect() as sender, self.connect() as listener, self.connect() as worker:
            self._make_table(sender, "like")
            try:
                listener.execute("LISTEN jobqueue_bench")
                with ThreadPoolExecutor(1) as pool:
                    waiting = pool.submit(self._take, listener, worker, samples)
                    for _ in range(samples):
                        pause()
                        started.append(time.monotonic_ns())
                        self._fill(sender, "like", 1)
                        sender.execute("SELECT pg_notify('jobqueue_bench', '')")
                    taken = waiting.result()
            finally:
                self._drop_tables(sender)
        return [(end - start) / 1e6 for start, end in zip(started, taken, strict=True)]

    def _take(self, listener: psycopg.Connection[Any], worker: psycopg.Connection[Any], count: int) -> list[int]:
        """When each of so many jobs was reserved, in the order of their arrival."""
        taken: list[int] = []
        while len(taken) < count:
            for _ in listener.notifies(timeout=LONGEST_SILENCE, stop_after=1):
                ids = self.reserve(worker, NAMES["like"])
                taken += [time.monotonic_ns()] * len(ids)
                self.delete(worker, NAMES["like"], ids)
                break
            else:
                raise RuntimeError(f"{len(taken)} of {count} raw jobs were heard of.")
        return taken

    def delete(self, connection: psycopg.Connection[Any], name: str, ids: list[Any]) -> None:
        connection.execute(f"DELETE FROM {name} WHERE id = ANY(%s)", (ids,))  # type: ignore[call-overload]
