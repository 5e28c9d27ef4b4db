"""SQLite, by the standard library."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db import connections

from django_jobqueue.models import Job

from .base import BATCH, QUEUE, Database

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class SQLite(Database):
    def server(self) -> dict[str, str]:
        with connections[self.alias].cursor() as cursor:
            journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
            synchronous = cursor.execute("PRAGMA synchronous").fetchone()[0]
        return {
            "server": f"SQLite {sqlite3.sqlite_version}",
            "library": "sqlite3",
            "journal_mode": str(journal),
            "synchronous": SYNCHRONOUS[synchronous],
        }

    def take_snapshot(self, cursor: Any) -> None:
        cursor.execute("BEGIN DEFERRED")

    # The raw limits

    def connect(self) -> sqlite3.Connection:
        wrapper = self.another_connection()
        wrapper.ensure_connection()  # with the project's own PRAGMAs
        connection: sqlite3.Connection = wrapper.connection
        return connection

    def execute(self, connection: sqlite3.Connection, statement: str) -> None:
        connection.execute(statement)

    def make_slim(self, connection: sqlite3.Connection, name: str) -> None:
        connection.execute(
            f"CREATE TABLE {name} (id integer PRIMARY KEY, queue text NOT NULL, name text NOT NULL, "
            "payload text NOT NULL, state text NOT NULL, rank integer NOT NULL, ready_at integer NOT NULL, "
            "attempts integer NOT NULL, token text, reserved_until integer)"
        )
        connection.execute(f"CREATE INDEX {name}_ready ON {name} (queue, rank, ready_at, id) WHERE state = 'ready'")

    def copy_table(self, connection: sqlite3.Connection, name: str) -> None:
        table = Job._meta.db_table
        found = connection.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC", (table,)
        ).fetchall()
        for (statement,) in found:
            copy = statement.replace(f'"{table}"', f'"{name}"')
            for index in Job._meta.indexes:
                copy = copy.replace(f'"{index.name}"', f'"{name}_{index.name}"')
            connection.execute(copy)

    def insert(
        self,
        connection: sqlite3.Connection,
        name: str,
        constants: dict[str, Any],
        ids: Sequence[Any],
        payloads: list[str],
    ) -> None:
        places = ", ".join(["?"] * (len(constants) + 2))
        fixed = tuple(constants.values())
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            f"INSERT INTO {name} (id, payload, {', '.join(constants)}) VALUES ({places})",
            [(_parameter(job_id), payload, *fixed) for job_id, payload in zip(ids, payloads, strict=True)],
        )
        connection.execute("COMMIT")

    def analyze_raw(self, connection: sqlite3.Connection, name: str) -> None:
        """Not done: it would leave its statistics table behind, and the small index leaves no choice."""

    def reserve(self, connection: sqlite3.Connection, name: str) -> list[Any]:
        found = connection.execute(
            f"UPDATE {name} SET state = 'reserved', attempts = attempts + 1, token = ?, "
            "reserved_until = CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + 90000000 "
            f"WHERE id IN (SELECT id FROM {name} WHERE queue = ? AND state = 'ready' "
            f"ORDER BY rank, ready_at, id LIMIT {BATCH}) RETURNING id, payload",
            (uuid4().hex, QUEUE),
        ).fetchall()
        return [row[0] for row in found]

    def delete(self, connection: sqlite3.Connection, name: str, ids: list[Any]) -> None:
        connection.execute(f"DELETE FROM {name} WHERE id IN ({', '.join('?' * len(ids))})", ids)


def _parameter(job_id: Any) -> Any:
    return job_id.hex if isinstance(job_id, UUID) else job_id
