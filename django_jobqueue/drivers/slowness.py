"""What slows a queue down in the database, for a person to end: transactions held open, and dead rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# Every reserve walks over the rows that such a transaction keeps from being removed.
LONG_TRANSACTION_SECONDS = 60
# As many as autovacuum leaves by the migration's threshold, and ten times that.
MANY_DEAD_ROWS = 10_000

_POSTGRESQL_TRANSACTION = """
SELECT pid, EXTRACT(EPOCH FROM clock_timestamp() - xact_start)::bigint, COALESCE(application_name, '')
FROM pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
  AND backend_type = 'client backend' AND xact_start < clock_timestamp() - %s * interval '1 second'
ORDER BY xact_start LIMIT 1
"""
_POSTGRESQL_DEAD_ROWS = "SELECT n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE relid = %s::regclass"
_MYSQL_TRANSACTION = """
SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW()) FROM information_schema.innodb_trx
WHERE trx_started < NOW() - INTERVAL %s SECOND AND trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx_started LIMIT 1
"""


def slowdowns(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    """One sentence for each thing that slows the table down, with the cure."""
    return [found for look in _LOOKS.get(connection.vendor, ()) if (found := look(connection, table))]


def _long_transaction_postgresql(connection: BaseDatabaseWrapper, table: str) -> str | None:
    row = _first(connection, _POSTGRESQL_TRANSACTION, [LONG_TRANSACTION_SECONDS])
    if row is None:
        return None
    pid, seconds, application = row
    by = f" by {application!r}" if application else ""
    return (
        f"A transaction has been open for {seconds:,} s{by} (process {pid}): rows of finished jobs cannot be removed "
        f"while it is, and reserving gets slower. End it, or its session: SELECT pg_terminate_backend({pid});"
    )


def _dead_rows_postgresql(connection: BaseDatabaseWrapper, table: str) -> str | None:
    row = _first(connection, _POSTGRESQL_DEAD_ROWS, [table])
    if row is None or row[0] < max(MANY_DEAD_ROWS, row[1]):
        return None
    return f"The table {table} has {row[0]:,} dead rows: autovacuum does not keep up. Now: VACUUM {table};"


def _long_transaction_mysql(connection: BaseDatabaseWrapper, table: str) -> str | None:
    row = _first(connection, _MYSQL_TRANSACTION, [LONG_TRANSACTION_SECONDS])
    if row is None:
        return None
    return (
        f"A transaction has been open for {row[1]:,} s (connection {row[0]}): rows of finished jobs cannot be purged "
        f"while it is, and reserving gets slower. End it, or its session: KILL {row[0]};"
    )


def _first(connection: BaseDatabaseWrapper, sql: str, params: list[Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
        return row


_LOOKS: dict[str, tuple[Callable[[BaseDatabaseWrapper, str], str | None], ...]] = {
    "postgresql": (_long_transaction_postgresql, _dead_rows_postgresql),
    "mysql": (_long_transaction_mysql,),
}
