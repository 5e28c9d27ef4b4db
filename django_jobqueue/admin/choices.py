"""The values that filters offer: the distinct ones of indexed columns, at a cost that does not grow with the table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Lock

from django.db import connections as databases

from ..drivers import connections
from ..models import FailedJob

KEPT_SECONDS = 60
#: How many values of a column are known, to be found by a search; filters show fewer.
MAX_VALUES = 200

# One index probe for each value; DISTINCT would read the whole index.
_VALUES = """
{column}_values ({column}, number) AS (
  SELECT MIN({column}), 1 FROM {table}
  UNION ALL
  SELECT (SELECT MIN(letter.{column}) FROM {table} letter WHERE letter.{column} > found.{column}), number + 1
  FROM {column}_values found WHERE found.{column} IS NOT NULL AND number < {limit}
)"""
_COLUMNS = ("queue", "name", "exception_class")


@dataclass(frozen=True, slots=True)
class Known:
    """Values of dead letters that existed at most ``KEPT_SECONDS`` ago."""

    values: dict[str, list[str]] = field(default_factory=dict)
    read_at: float = 0.0


_failed: dict[str, Known] = {}
_queues: dict[str, Known] = {}
_lock = Lock()


def failed_values(database: str, column: str) -> list[str]:
    """The first distinct values of "queue", "name" or "exception_class" of the dead letters, sorted."""
    known = _failed.get(database)
    if known is None or time.monotonic() - known.read_at > KEPT_SECONDS:
        known = Known(_read(database), time.monotonic())
        with _lock:
            _failed[database] = known
    return known.values[column]


def waiting_queues(database: str) -> list[str]:
    """The queues that hold a job."""
    known = _queues.get(database)
    if known is None or time.monotonic() - known.read_at > KEPT_SECONDS:
        drivers = [each for each in connections.all() if each.supports_transactions and each.database == database]
        found = {queue for driver in drivers for queue in driver.queues()}
        known = Known({"queue": sorted(found)[:MAX_VALUES]}, time.monotonic())
        with _lock:
            _queues[database] = known
    return known.values["queue"]


def forget() -> None:
    """Read anew at the next use."""
    with _lock:
        _failed.clear()
        _queues.clear()


def _read(database: str) -> dict[str, list[str]]:
    """All three columns in one query."""
    table = FailedJob._meta.db_table
    queries = [_VALUES.format(column=column, table=table, limit=MAX_VALUES) for column in _COLUMNS]
    selects = [
        f"SELECT '{column}', {column} FROM {column}_values WHERE {column} IS NOT NULL"  # noqa: S608 - names of our own
        for column in _COLUMNS
    ]
    found: dict[str, list[str]] = {column: [] for column in _COLUMNS}
    with databases[database].cursor() as cursor:
        cursor.execute(f"WITH RECURSIVE {','.join(queries)} {' UNION ALL '.join(selects)}")
        for column, value in cursor.fetchall():
            found[column].append(value)
    return {column: sorted(values) for column, values in found.items()}
