"""A job that no handler fits: an unknown name, a payload that cannot be read, arguments that no longer fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobqueue import get_job
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def test_an_unknown_name_is_an_ordinary_failed_attempt(
    driver: Driver, make_worker: Callable[..., Worker], clock: Clock, register: Register
) -> None:
    """F83: it is never dropped, and runs with what it was given once its handler is there."""
    job = NewJob(id=new_job_id(), name="tests.old_name", queue="default", payload='{"args":[1],"kwargs":{}}', format=1)
    driver.push([job])
    worker = make_worker(max_attempts=2, backoff=30)
    worker.work_once(now=clock.now)
    found = get_job(job.id)
    assert found is not None
    assert (found.state, found.errors[0].exception_class) == ("scheduled", "django_jobqueue.exceptions.UnknownJob")
    assert "'tests.old_name'" in found.errors[0].message
    assert "MODULES" in found.errors[0].message
    worker.work_once(now=clock.tick(31))
    record = driver.get(job.id)
    assert record is not None
    assert (record.state, record.payload) == ("failed", '{"args":[1],"kwargs":{}}')

    seen = []

    @register()
    def old_name(number: int) -> None:
        seen.append(number)

    driver.retry({driver.last_failed_number(): None})
    worker.work_once(now=clock.now)
    assert seen == [1]


@pytest.mark.parametrize(
    ("payload", "version"),
    [
        ("", 1),
        ("{", 1),
        ("null", 1),
        ('{"args":{}}', 1),
        ('{"args":[{"$type":"gone","value":1}]}', 1),
        ('{"args":[],"kwargs":{}}', 999),
    ],
)
def test_a_payload_that_cannot_be_read_is_a_failed_attempt(
    driver: Driver, worker: Worker, clock: Clock, register: Register, payload: str, version: int
) -> None:
    """F85"""

    @register()
    def add() -> None:
        raise AssertionError

    job = NewJob(id=new_job_id(), name="tests.add", queue="default", payload=payload, format=version, max_attempts=1)
    driver.push([job])
    worker.work_once(now=clock.now)
    record = driver.get(job.id)
    assert record is not None
    assert (record.state, record.payload) == ("failed", payload)
    assert record.exception_class == "django_jobqueue.exceptions.InvalidPayload"


def test_unknown_keys_of_a_payload_are_ignored(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F85"""
    seen = []

    @register()
    def add(number: int) -> None:
        seen.append(number)

    text = '{"args":[1],"kwargs":{},"later":true}'
    driver.push([NewJob(id=new_job_id(), name="tests.add", queue="default", payload=text, format=1)])
    worker.work_once(now=clock.now)
    assert seen == [1]


def test_a_payload_that_no_longer_fits_says_which_parameter(
    driver: Driver, worker: Worker, clock: Clock, register: Register
) -> None:
    """F82"""

    @register(max_attempts=1)
    def add(number: int) -> None: ...

    job_id = add.dispatch(1).id

    @register(name="tests.add")
    def add(number: int, customer: int) -> None: ...

    worker.work_once(now=clock.now)
    job = get_job(job_id)
    assert job is not None
    assert "customer" in job.errors[0].message
