"""A job that notes what it was called with, and what became of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import get_job, using
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock


@pytest.fixture
def done(register: Callable[..., Callable[[Callable[..., Any]], Any]]) -> list[Any]:
    """What the job "tests.note" was called with, in order."""
    seen: list[Any] = []

    @register()
    def note(value: Any) -> None:
        seen.append(value)

    return seen


def note(*values: Any, **options: Any) -> list[UUID]:
    return [using("tests.note", **options).dispatch(value).id for value in values]


def state(job_id: UUID) -> tuple[str, int] | None:
    """State and attempts of a job, None when it is gone."""
    job = get_job(job_id)
    return None if job is None else (job.state, job.attempts)


def run_all(worker: Worker, clock: Clock) -> None:
    """Run whatever is due, second by second of the clock."""
    while worker.work_once(now=clock.tick()):
        pass


def failed(job_id: Any) -> Any:
    """The job, which is a dead letter."""
    job = get_job(job_id)
    assert job is not None
    assert job.state == "failed"
    return job
