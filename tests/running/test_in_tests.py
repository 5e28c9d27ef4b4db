"""A project's own tests: jobs dispatched in a TestCase run there, and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.models import Job
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.worker import Worker

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def queue(db: None, settings: Any) -> Driver:
    """The database's queue inside of the transaction of a TestCase."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}}}
    return connections["default"]


def work_until_empty() -> WorkerStats:
    return Worker(WorkerOptions.from_settings(stop_when_empty=True)).run()


def test_a_job_is_seen_and_runs_inside_of_the_tests_transaction(queue: Driver, register: Register) -> None:
    """F89"""

    @register()
    def work() -> None:
        Group.objects.create(name="effect")

    work.dispatch()
    assert Job.objects.count() == 1
    assert Worker().work_once()
    assert Group.objects.filter(name="effect").exists()
    assert Job.objects.count() == 0


def test_a_whole_loop_runs_inside_of_it_one_job_at_a_time_and_without_a_thread(
    queue: Driver, register: Register
) -> None:
    """F89"""
    before = set(threading.enumerate())
    threads: list[Any] = []

    @register()
    def work(number: int) -> None:
        threads.append(set(threading.enumerate()) - before)

    for number in range(10):
        work.dispatch(number)
    assert work_until_empty() == WorkerStats(processed=10)
    assert threads == [set()] * 10


def test_the_tests_transaction_outlives_its_jobs(queue: Driver, register: Register) -> None:
    @register(max_attempts=1)
    def work(mode: str) -> None:
        with transaction.atomic():
            Group.objects.create(name=mode)
            if mode == "raise":
                raise ValueError

    connection = transaction.get_connection()
    raw = connection.connection
    failed, _ = work.dispatch("raise"), work.dispatch("end")
    assert work_until_empty() == WorkerStats(processed=1, failed=1)
    assert connection.connection is raw
    assert connection.in_atomic_block
    assert list(Group.objects.values_list("name", flat=True)) == ["end"]
    job = get_job(failed.id)
    assert job is not None
    assert job.state == "failed"


@pytest.mark.parametrize("fails", [False, True])
def test_an_atomic_job_runs_inside_of_it(queue: Driver, register: Register, fails: bool) -> None:
    @register(atomic=True, max_attempts=1)
    def work() -> None:
        Group.objects.create(name="effect")
        if fails:
            raise ValueError

    work.dispatch()
    stats = work_until_empty()
    assert (stats.processed, stats.failed) == ((0, 1) if fails else (1, 0))
    assert Group.objects.exists() is not fails


def test_a_job_in_memory_is_dispatched_by_captured_callbacks(
    db: None, settings: Any, register: Register, django_capture_on_commit_callbacks: Any
) -> None:
    """F89: it waits for a commit, which a TestCase never makes."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    seen: list[int] = []

    @register()
    def work(number: int) -> None:
        seen.append(number)

    with django_capture_on_commit_callbacks(execute=True) as callbacks:
        work.dispatch(1)
        assert work_until_empty() == WorkerStats()
    assert len(callbacks) == 1
    assert work_until_empty() == WorkerStats(processed=1)
    assert seen == [1]


def test_the_queue_in_memory_needs_no_database(settings: Any, register: Register) -> None:
    """F89: pytest-django would raise at the first access of this test."""
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}

    @register(max_attempts=2, backoff=0)
    def work(fails: bool) -> None:
        if fails:
            raise ValueError

    work.dispatch(False)
    failing = work.dispatch(True)
    assert work_until_empty() == WorkerStats(processed=1, released=1, failed=1)
    job = get_job(failing.id)
    assert job is not None
    assert job.state == "failed"


class DispatchTest(TestCase):
    """Django's own way."""

    def test_a_job_runs_where_it_was_dispatched(self) -> None:
        from django.test import override_settings

        from shop.jobs import refresh_spending
        from shop.models import Customer

        customer = Customer.objects.create(name="Ann", email="ann@example.com")
        with override_settings(JOBQUEUE={}), self.captureOnCommitCallbacks(execute=True):
            refresh_spending.dispatch(customer.pk)
            assert Worker().work_once()
        customer.refresh_from_db()
        assert customer.spent == 0
