"""Rows like the queue's own, for what the queue is held against: the bare ORM, and raw SQL."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.db import connections
from django.utils import timezone

from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.payloads import FORMAT
from django_jobqueue.jobs.records import READY
from django_jobqueue.models import Job

from ..jobs import noop

QUEUE = "bench-orm"


def payload(index: int) -> str:
    return json.dumps({"args": [index], "kwargs": {}}, separators=(",", ":"))


def fields(index: int) -> dict[str, Any]:
    """The fields of a ready job that never runs; all others have defaults."""
    now = timezone.now()
    return {
        "id": new_job_id(),
        "queue": QUEUE,
        "name": noop.definition.name,
        "payload": payload(index),
        "format": FORMAT,
        "rank": 0,
        "state": READY,
        "ready_at": now,
        "available_at": now,
        "created_at": now,
    }


def constants(alias: str) -> dict[str, Any]:
    """The columns of such a job but its id and payload, as the database takes them; none is forgotten."""
    job = Job(**fields(0))
    connection = connections[alias]
    return {
        field.column: field.get_db_prep_save(field.value_from_object(job), connection)
        for field in Job._meta.concrete_fields
        if field.column not in {"id", "payload"}
    }


def job_ids(count: int) -> list[UUID]:
    return [new_job_id() for _ in range(count)]
