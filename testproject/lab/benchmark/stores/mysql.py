"""MariaDB and MySQL, by mysqlclient."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, ClassVar
from uuid import UUID, uuid4

import MySQLdb
from django.db import connections

from django_jobqueue.models import Job

from .base import BATCH, QUEUE, Database

SETTINGS = ("version", "innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_buffer_pool_size")


class MySQL(Database):
    commits_are_of: ClassVar[str] = "the whole server"

    def server(self) -> dict[str, str]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'@@{name}' for name in SETTINGS)}")
            values = dict(zip(SETTINGS, map(str, cursor.fetchone()), strict=True))
        return {
            "server": f"MySQL or MariaDB {values.pop('version')}",
            "library": f"mysqlclient {version('mysqlclient')}",
            **values,
        }

    def commits(self) -> int | None:
        """Of COMMIT statements; a statement in autocommit is none."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_commit'")
            return int(cursor.fetchone()[1])

    def take_snapshot(self, cursor: Any) -> None:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    # The raw limits

    def connect(self) -> Any:
        connection = MySQLdb.connect(**connections[self.alias].get_connection_params())
        connection.autocommit(True)
        self.execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    def execute(self, connection: Any, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    def make_slim(self, connection: Any, name: str) -> None:
        self.execute(
            connection,
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, queue varchar(100) NOT NULL, name varchar(255) NOT NULL, "
            "payload longtext NOT NULL, state varchar(9) NOT NULL, `rank` smallint NOT NULL, "
            "ready_at bigint NOT NULL, attempts int NOT NULL, token char(32), reserved_until bigint, "
            "KEY ready (queue, state, `rank`, ready_at, id))",
        )

    def copy_table(self, connection: Any, name: str) -> None:
        self.execute(connection, f"CREATE TABLE {name} LIKE {Job._meta.db_table}")

    def insert(
        self, connection: Any, name: str, constants: dict[str, Any], ids: Sequence[Any], payloads: list[str]
    ) -> None:
        columns = ", ".join(f"`{column}`" for column in constants)
        places = ", ".join(["%s"] * (len(constants) + 2))
        fixed = tuple(constants.values())
        new = [(_parameter(job_id), payload, *fixed) for job_id, payload in zip(ids, payloads, strict=True)]
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} (id, payload, {columns}) VALUES ({places})", new)

    def analyze_raw(self, connection: Any, name: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE TABLE {name}")
            cursor.fetchall()

    def reserve(self, connection: Any, name: str) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute(
                f"SELECT id, payload FROM {name} WHERE queue = %s AND state = 'ready' "
                f"ORDER BY `rank`, ready_at, id LIMIT {BATCH} FOR UPDATE SKIP LOCKED",
                (QUEUE,),
            )
            ids = [row[0] for row in cursor.fetchall()]
            if ids:
                cursor.execute(
                    f"UPDATE {name} SET state = 'reserved', attempts = attempts + 1, token = %s, reserved_until = "
                    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 90000000 WHERE id IN %s",
                    (uuid4().hex, ids),
                )
            cursor.execute("COMMIT")
        return ids

    def delete(self, connection: Any, name: str, ids: list[Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {name} WHERE id IN %s", (ids,))


def _parameter(job_id: Any) -> Any:
    return job_id.hex if isinstance(job_id, UUID) else job_id
