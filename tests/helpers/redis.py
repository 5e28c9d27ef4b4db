"""A Redis connection whose keys no other test sees, and which leaves nothing on the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue.drivers.base import Driver
from django_jobqueue.models import FailedJob

# Dead letters are real rows, committed as a worker commits them.
REDIS = pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.django_db(transaction=True)])
CACHE = "redis"


def entry(**changes: Any) -> dict[str, Any]:
    """An entry of CONNECTIONS with a prefix of its own."""
    return {"DRIVER": "redis", "CACHE": CACHE, "PREFIX": f"test-{uuid4().hex}:", "DATABASE": "default", **changes}


@contextmanager
def redis_driver(alias: str = "default", **changes: Any) -> Iterator[Any]:
    from django_jobqueue.drivers.redis import RedisDriver

    options = entry(**changes)
    del options["DRIVER"]
    driver = RedisDriver(alias, options)
    try:
        yield driver
    finally:
        wipe(driver)
        driver.close()


def wipe(driver: Driver) -> None:
    """Remove the keys and the dead letters of one connection."""
    keys = list(driver.client.scan_iter(match=f"{{{driver.options.prefix}}}*", count=1000))  # type: ignore[attr-defined]
    if keys:
        driver.client.delete(*keys)  # type: ignore[attr-defined]
    FailedJob.objects.using(driver.database or "default").filter(connection=driver.alias).delete()
