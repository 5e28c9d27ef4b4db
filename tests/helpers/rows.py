"""Many rows of the hot table at once, made by the database itself, and what reading a few of them costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_jobqueue.models.fields import store_now_sql

TABLE = "django_jobqueue_job"
HOUR = 3_600_000_000


def fill(
    count: int,
    *,
    queue: str = "default",
    state: str = "ready",
    rank: int = 0,
    due_in: int = HOUR,
    alias: str = "default",
) -> None:
    """Add jobs, one microsecond apart; a scheduled one is due in ``due_in`` microseconds."""
    connection = connections[alias]
    series, job_id = {
        "postgresql": (f"(SELECT generate_series(1, {count}) AS seq) AS s", "gen_random_uuid()"),
        "mysql": (f"seq_1_to_{count} AS s", "REPLACE(UUID(), '-', '')"),
        "sqlite": (
            "(WITH RECURSIVE s(seq) AS "
            f"(SELECT 1 UNION ALL SELECT seq + 1 FROM s LIMIT {count}) SELECT seq FROM s) AS s",
            "lower(hex(randomblob(16)))",
        ),
    }[connection.vendor]
    values = {
        "id": job_id,
        "queue": f"'{queue}'",
        "name": "'shop.work'",
        "payload": """'{"args":[],"kwargs":{}}'""",
        "format": "1",
        "rank": str(rank),
        "state": f"'{state}'",
        "ready_at": "n.clock + s.seq",
        "available_at": f"n.clock + s.seq + {due_in if state == 'scheduled' else 0}",
        "created_at": "n.clock",
        "attempts": "0",
        "exceptions": "0",
        "crashes": "0",
        "retries": "0",
        "worker": "''",
        "alone": "FALSE",
        "reserved_at": "n.clock" if state == "reserved" else "NULL",
        "reserved_until": f"n.clock + {HOUR}" if state == "reserved" else "NULL",
        "errors": "''",
        "metadata": "''",
        "masked": "''",
    }
    columns = ", ".join(map(connection.ops.quote_name, values))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {TABLE} ({columns}) SELECT {', '.join(values.values())} "
            f"FROM {series}, (SELECT {store_now_sql(connection.vendor)} AS clock) AS n"
        )


def analyze(alias: str = "default") -> None:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute({"mysql": f"ANALYZE TABLE {TABLE}"}.get(connection.vendor, f"ANALYZE {TABLE}"))
        if connection.vendor == "mysql":
            cursor.fetchall()


def statements(action: Callable[[], Any], alias: str = "default") -> list[str]:
    """The SQL that an action sends from this thread, with its parameters in it."""
    with CaptureQueriesContext(connections[alias]) as captured:
        action()
    return [query["sql"] for query in captured.captured_queries]


def plan(sql: str, alias: str = "default") -> str:
    """How the database would run a statement, as text."""
    connection = connections[alias]
    how = {"postgresql": "EXPLAIN", "mysql": "EXPLAIN FORMAT=JSON", "sqlite": "EXPLAIN QUERY PLAN"}[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"{how} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def pages_read(sql: str, alias: str = "default") -> int:
    """How many pages the server touches for a statement, which it runs and undoes; dead entries count."""
    connection = connections[alias]
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            cursor.execute(
                f"{'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)' if is_postgresql else 'ANALYZE FORMAT=JSON'} {sql}"
            )
            said = cursor.fetchone()[0]
        finally:
            cursor.execute("ROLLBACK")
    if is_postgresql:
        node = (said if isinstance(said, list) else json.loads(said))[0]["Plan"]
        return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])
    return _pages_accessed(json.loads(said))


def _pages_accessed(node: Any) -> int:
    if isinstance(node, list):
        return sum(map(_pages_accessed, node))
    if not isinstance(node, dict):
        return 0
    return sum(value if key == "pages_accessed" else _pages_accessed(value) for key, value in node.items())
