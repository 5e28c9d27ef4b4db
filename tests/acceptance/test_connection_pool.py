"""Workers in a project that has a pool of connections, which is smaller than its workers."""

from __future__ import annotations

import pytest

pytest.importorskip("psycopg_pool", reason="psycopg-pool is not installed")

from django.db import connection

from django_jobqueue import dispatch_many
from django_jobqueue.models import FailedJob, Job
from tests.helpers.marks import Marks
from tests.helpers.processes import Processes
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import query

pytestmark = [pytest.mark.process, pytest.mark.postgres]

JOBS, THREADS, POOL = 100, 6, 3
NAME = "a small pool"


def test_more_workers_than_the_pool_has_connections_lose_nothing(processes: Processes, marks: Marks) -> None:
    """F72"""
    options = processes.databases["default"]["OPTIONS"]
    options |= {"pool": {"min_size": 1, "max_size": POOL, "timeout": 2}, "application_name": NAME}
    dispatch_many(query.s(number) for number in range(JOBS))
    worker = processes.worker("--workers", str(THREADS))
    most = 0

    def is_done() -> bool:
        nonlocal most
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [NAME])
            most = max(most, cursor.fetchone()[0])
        return not Job.objects.exists()

    wait_until(is_done, lambda: f"no job is left:\n{worker.output}", seconds=120)
    assert worker.stop() == 0
    assert 0 < most <= POOL
    assert len({run.job_id for run in marks.read("ran")}) == JOBS
    assert not FailedJob.objects.exists()
