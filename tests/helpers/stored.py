"""A job as its driver has it."""

from __future__ import annotations

from typing import Any

from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.payloads import decode


def stored(driver: Driver, job_id: Any) -> Any:
    record = driver.get(job_id)
    assert record is not None
    return record


def arguments(driver: Driver, job_id: Any) -> tuple[list[Any], dict[str, Any]]:
    record = stored(driver, job_id)
    return decode(record.payload, record.format)
