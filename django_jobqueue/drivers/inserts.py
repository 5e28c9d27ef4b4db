"""The INSERT of new jobs, and of rows that the database copies from another table.

Due times are added up by the store, so that no host's clock matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Model

from ..jobs.records import READY, SCHEDULED, NewJob
from ..jobs.times import microseconds, to_microseconds
from ..models.fields import clock_sql, uuid_parameter

_COLUMNS = (
    "id, queue, name, payload, format, `rank`, max_attempts, metadata, masked, "
    "state, ready_at, available_at, created_at, retry_until, "
    "attempts, exceptions, crashes, retries, worker, alone, errors"
)
_JOB_PLACES = "%s, %s, %s, %s, %s, %s, %s, %s, %s"
_CONSTANTS = "0, 0, 0, 0, '', FALSE, ''"


def insert_statement(jobs: Sequence[NewJob], vendor: str, now: datetime | None) -> tuple[str, list[Any]]:
    """The statement and its parameters; without ``now`` each row carries the SQL of the store's clock."""
    clock = clock_sql(vendor, now)
    has_flows = any(job.flow is not None for job in jobs)
    rows, params = [], []
    for job in jobs:
        params += [
            uuid_parameter(job.id, vendor),
            job.queue,
            job.name,
            job.payload,
            job.format,
            job.rank,
            job.max_attempts,
            job.metadata,
            job.masked,
        ]
        times, moments = _times(job, clock)
        params += moments
        if has_flows:
            params.append(job.flow)
        rows.append(f"({_JOB_PLACES}, {times}, {_CONSTANTS}{', %s' if has_flows else ''})")
    columns = _COLUMNS if vendor == "mysql" else _COLUMNS.replace("`", "")
    columns += ", flow" if has_flows else ""
    return f"INSERT INTO django_jobqueue_job ({columns}) VALUES {', '.join(rows)}", params  # noqa: S608


def copy_rows(
    database: str,
    source: type[Model],
    target: type[Model],
    given: Mapping[str, str],
    params: Sequence[Any],
    keys: Sequence[Any],
) -> None:
    """Insert rows made of those of ``source`` with these primary keys, in the caller's transaction.

    ``given`` is the SQL of columns of ``target``, in the order of ``params``; all others are those of the same name.
    """
    connection = connections[database]
    quoted = connection.ops.quote_name
    columns = [*given, *(field.attname for field in target._meta.fields if field.attname not in given)]
    values = [given.get(column, quoted(column)) for column in columns]
    places = ", ".join(["%s"] * len(keys))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {target._meta.db_table} ({', '.join(map(quoted, columns))}) "  # noqa: S608
            f"SELECT {', '.join(values)} FROM {source._meta.db_table} WHERE id IN ({places})",
            [*params, *keys],
        )


def _times(job: NewJob, clock: str) -> tuple[str, list[int | None]]:
    """SQL and parameters of state, ready_at, available_at, created_at and retry_until."""
    retry_for = None if job.retry_for is None else microseconds(job.retry_for)
    if job.available_at is not None:
        due = to_microseconds(job.available_at)
        return (
            f"CASE WHEN %s <= {clock} THEN '{READY}' ELSE '{SCHEDULED}' END, "
            f"CASE WHEN %s <= {clock} THEN {clock} ELSE %s END, %s, {clock}, %s",
            [due, due, due, due, None if retry_for is None else due + retry_for],
        )
    if delay := microseconds(job.delay or 0):
        return (
            f"'{SCHEDULED}', {clock} + %s, {clock} + %s, {clock}, {clock} + %s",
            [delay, delay, None if retry_for is None else delay + retry_for],
        )
    return f"'{READY}', {clock}, {clock}, {clock}, {clock} + %s", [retry_for]
