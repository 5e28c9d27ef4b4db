"""A job that may be slow: it stops at a gate in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import using
from django_jobqueue.drivers import Driver
from tests.helpers.gates import Gate

# One worker reserves 1, 2 and then 4 of jobs that take no time: "slow" is the second of the four.
BATCHES = (0, 1, 2, 3, "slow", 5, 6)


@pytest.fixture
def held(register: Callable[..., Callable[[Callable[..., Any]], Any]], gate: Gate) -> list[Any]:
    """What the job "tests.work" was called with; it stops at the gate when that is "slow"."""
    seen: list[Any] = []

    @register()
    def work(value: Any) -> None:
        seen.append(value)
        if value == "slow":
            gate.pass_through()

    return seen


def work(*values: Any, **options: Any) -> list[UUID]:
    return [using("tests.work", **options).dispatch(value).id for value in values]


def reserved_until(driver: Driver, job_id: UUID) -> datetime:
    record = driver.get(job_id)
    assert record is not None
    assert record.reserved_until is not None
    return record.reserved_until
