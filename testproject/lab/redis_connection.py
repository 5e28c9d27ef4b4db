"""The test project's connection "redis", which is configured only while somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.test.utils import override_settings

from django_jobqueue.conf import get_settings

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
