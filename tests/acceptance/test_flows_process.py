"""Chains and batches on worker processes, some of which are killed in the middle of a job."""

from __future__ import annotations

import pytest

from django_jobqueue import batch, chain
from django_jobqueue.models import Batch, BatchMember, FailedJob, Job
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import act, mark

pytestmark = pytest.mark.process

CHAINS, STEPS = 6, 4
BATCHES, MEMBERS = 3, 8
DEADLY = 2  # of the chains; and one of the batches


def is_over() -> bool:
    return not Job.objects.exists() and not Batch.objects.filter(finished_at=None).exists()


def work_until_over(processes: Processes) -> None:
    """Three workers, each replaced when it was killed."""
    workers: list[Process] = [processes.worker() for _ in range(3)]

    def look() -> bool:
        for number, worker in enumerate(workers):
            if not worker.is_running:
                workers[number] = processes.worker()
        return is_over()

    wait_until(look, lambda: f"no job is left, of {Job.objects.count()}")


def test_with_killed_workers_every_step_runs_in_order_and_every_callback_is_called_once(
    processes: Processes, marks: Marks
) -> None:
    """F08"""
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = 1
    for number in range(CHAINS):
        steps = [act.s(f"c{number}.{step}", "die once" if number == step < DEADLY else "") for step in range(STEPS)]
        chain(*steps).dispatch()
    for number in range(BATCHES):
        members = [
            act.s(f"b{number}.{member}", "die once" if number == member == 0 else "") for member in range(MEMBERS)
        ]
        batch(members).then(mark.s(f"then {number}")).finally_(mark.s(f"finally {number}")).dispatch()
    work_until_over(processes)

    ran = marks.read("ran")
    for number in range(CHAINS):
        first: dict[str, float] = {}
        for run in ran:
            if run.key.startswith(f"c{number}."):
                first.setdefault(run.key, run.at)
        assert sorted(first, key=first.__getitem__) == [f"c{number}.{step}" for step in range(STEPS)]
    for number in range(BATCHES):
        assert {run.key for run in ran if run.key.startswith(f"b{number}.")} == {
            f"b{number}.{member}" for member in range(MEMBERS)
        }
        for callback in (f"then {number}", f"finally {number}"):
            assert len({run.job_id for run in ran if run.key == callback}) == 1
    assert not FailedJob.objects.exists()
    assert not BatchMember.objects.exists()
