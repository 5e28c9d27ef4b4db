"""The INSERT of new jobs: due times are added up by the store, so that no host's clock matters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..jobs.records import READY, SCHEDULED, NewJob
from ..jobs.times import microseconds, to_microseconds
from ..models.fields import store_now_sql, uuid_parameter

_COLUMNS = (
    "id, queue, name, payload, format, `rank`, max_attempts, metadata, masked, "
    "state, ready_at, available_at, created_at, retry_until, "
    "attempts, exceptions, crashes, retries, worker, alone, errors"
)
_JOB_PLACES = "%s, %s, %s, %s, %s, %s, %s, %s, %s"
_CONSTANTS = "0, 0, 0, 0, '', FALSE, ''"


def insert_statement(jobs: Sequence[NewJob], vendor: str, now: datetime | None) -> tuple[str, list[Any]]:
    """The statement and its parameters; without ``now`` each row carries the SQL of the store's clock."""
    clock = store_now_sql(vendor).replace("%", "%%") if now is None else str(to_microseconds(now))
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
