"""The test project's connection "redis", which is configured only while somebody asks for it, and its server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.test.utils import override_settings

from django_jobqueue.conf import get_settings

if TYPE_CHECKING:  # it may be missing
    from redis import Redis

REDIS = "redis"


@contextmanager
def with_redis(store: str) -> Iterator[None]:
    """Configure the test project's connection "redis", here and in processes of ours, when it is asked for."""
    if store != REDIS or REDIS in get_settings().connections:
        yield
        return
    configured = {**get_settings().connections, REDIS: settings.REDIS_CONNECTION}
    os.environ["JOBQUEUE_REDIS"] = "1"
    try:
        with override_settings(JOBQUEUE={**settings.JOBQUEUE, "CONNECTIONS": configured}):
            yield
    finally:
        del os.environ["JOBQUEUE_REDIS"]


def server_version(client: Redis) -> str:
    """Valkey tells its own version beside that of the Redis which it can stand in for."""
    info = cast(dict[str, Any], client.info("server"))
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
