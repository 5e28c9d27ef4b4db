"""Chains and batches on worker processes, some of which are killed in the middle of a job."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from django_jobqueue import PREVIOUS, batch, chain, get_batch
from django_jobqueue.drivers import connections
from django_jobqueue.models import BatchMember, FailedJob
from tests.drivers.contract import DATABASE
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes
from tests.helpers.redis import REDIS, entry, wipe
from tests.helpers.waiting import wait_until
from tests.helpers.work.jobs import act, linger, mark

pytestmark = pytest.mark.process

CHAINS, STEPS = 6, 4
BATCHES, MEMBERS = 3, 8
DEADLY = 2  # of the chains; and one of the batches

MANY_CHAINS, MANY_BATCHES = 20, 10
WORKERS = 3
LEAST_KILLS, MOST_KILLS = 3, 6
RUNS_BETWEEN_KILLS = (10, 40)
GENEROUS = 180


def is_over(batches: list[UUID]) -> bool:
    if connections["default"].sizes():
        return False
    found = [get_batch(batch_id) for batch_id in batches]
    return all(each is not None and each.finished_at is not None for each in found)


def work_until_over(
    processes: Processes, batches: list[UUID], disturb: Callable[[list[Process]], None] = lambda workers: None
) -> None:
    """So many workers, each replaced when it was killed."""
    workers: list[Process] = [processes.worker() for _ in range(WORKERS)]

    def look() -> bool:
        for number, worker in enumerate(workers):
            if not worker.is_running:
                workers[number] = processes.worker()
        disturb(workers)
        return is_over(batches)

    wait_until(look, lambda: f"all has ended: {connections['default'].sizes()}", seconds=GENEROUS)


def test_with_killed_workers_every_step_runs_in_order_and_every_callback_is_called_once(
    processes: Processes, marks: Marks
) -> None:
    """F08"""
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = 1
    for number in range(CHAINS):
        steps = [act.s(f"c{number}.{step}", "die once" if number == step < DEADLY else "") for step in range(STEPS)]
        chain(*steps).dispatch()
    batches = []
    for number in range(BATCHES):
        members = [
            act.s(f"b{number}.{member}", "die once" if number == member == 0 else "") for member in range(MEMBERS)
        ]
        composite = batch(members).then(mark.s(f"then {number}")).finally_(mark.s(f"finally {number}"))
        batches.append(composite.dispatch().id)
    work_until_over(processes, batches)

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


def test_flows_end_where_every_transaction_is_serializable(processes: Processes, marks: Marks) -> None:
    """F77"""
    if connection.vendor != "sqlite":  # which has no other level
        level = 4 if connection.vendor == "postgresql" else "serializable"
        processes.databases["default"]["OPTIONS"]["isolation_level"] = level
    for number in range(CHAINS):
        chain(*(mark.s(f"c{number}.{step}") for step in range(STEPS))).dispatch()
    made = [batch(mark.s(f"b{number}.{member}") for member in range(MEMBERS)) for number in range(BATCHES)]
    batches = [each.then(mark.s("then")).finally_(mark.s("finally")).dispatch().id for each in made]
    worker = processes.worker("--workers", "3")
    wait_until(lambda: is_over(batches), lambda: f"all has ended:\n{worker.output}", seconds=GENEROUS)
    assert worker.stop() == 0
    assert len({run.job_id for run in marks.read("ran")}) == CHAINS * STEPS + BATCHES * (MEMBERS + 2)
    assert {name: len({run.job_id for run in marks.read("ran", name)}) for name in ("then", "finally")} == {
        "then": BATCHES,
        "finally": BATCHES,
    }
    for number in range(CHAINS):
        begun = [marks.read("ran", f"c{number}.{step}")[0].at for step in range(STEPS)]
        assert begun == sorted(begun)
    assert not FailedJob.objects.exists()


@pytest.fixture(params=[DATABASE, REDIS])
def on_each_store(request: pytest.FixtureRequest, processes: Processes, settings: Any) -> Iterator[Processes]:
    """The processes, and this one, with one connection, which keeps batches."""
    configured = entry() if request.param == "redis" else {"DRIVER": request.param}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": configured}}
    processes.settings["JOBQUEUE"] |= {**settings.JOBQUEUE, "RETRY_AFTER": 1}
    yield processes
    processes.end_all()
    if request.param == "redis":
        wipe(connections["default"])


class Killer:
    """Kills a worker that chance chooses, of those that have begun, whenever a few more jobs have run."""

    def __init__(self, marks: Marks) -> None:
        self.kills = 0
        self._marks = marks
        self._next_at = 1

    def __call__(self, workers: list[Process]) -> None:
        ran = self._marks.read("ran")
        if len(ran) < self._next_at or self.kills == MOST_KILLS:
            return
        self._next_at = len(ran) + random.randint(*RUNS_BETWEEN_KILLS)
        begun = {run.pid for run in ran}
        victims = [worker for worker in workers if worker.is_running and worker.pid in begun]
        if victims:
            random.choice(victims).kill()
            self.kills += 1


@pytest.mark.slow
def test_flows_outlive_workers_that_are_killed_at_any_moment(on_each_store: Processes, marks: Marks) -> None:
    for number in range(MANY_CHAINS):
        later = [linger.s(f"c{number}.{step}", PREVIOUS) for step in range(1, STEPS)]
        chain(linger.s(f"c{number}.0"), *later).dispatch()
    batches = []
    for number in range(MANY_BATCHES):
        composite = batch(linger.s(f"b{number}.{member}") for member in range(MEMBERS))
        composite = (
            composite.then(mark.s(f"then {number}")).catch(mark.s("catch")).finally_(mark.s(f"finally {number}"))
        )
        batches.append(composite.dispatch().id)
    killer = Killer(marks)
    work_until_over(on_each_store, batches, killer)
    assert killer.kills >= LEAST_KILLS

    ran = marks.read("ran")
    begun: dict[str, float] = {}
    jobs: dict[str, set[str]] = {}
    for run in sorted(ran, key=lambda run: run.at):
        begun.setdefault(run.key, run.at)
        jobs.setdefault(run.key, set()).add(run.job_id)
    expected = set()
    for number in range(MANY_CHAINS):
        names = [f"c{number}.{step}" for step in range(STEPS)]
        keys = [names[0], *(f"{before}>{key}" for before, key in pairwise(names))]
        assert sorted(keys, key=begun.__getitem__) == keys
        expected |= set(keys)
    for number in range(MANY_BATCHES):
        members = [f"b{number}.{member}" for member in range(MEMBERS)]
        called = {f"then {number}", f"finally {number}"}
        assert max(begun[key] for key in members) < min(begun[key] for key in called)
        expected |= {*members, *called}
    assert {key: len(ids) for key, ids in jobs.items()} == dict.fromkeys(expected, 1), "each was stored once"
    assert not FailedJob.objects.exists()
    for record in map(get_batch, batches):
        assert record is not None
        assert (record.done, record.pending, record.failed) == (MEMBERS, 0, 0)
