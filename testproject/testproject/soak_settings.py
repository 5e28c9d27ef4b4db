"""Settings of the processes that `soak` starts: the test project's, with a database of the soak's own."""

from __future__ import annotations

import json
import os
from typing import Any

from testproject.settings import *  # noqa: F403

_soak: dict[str, Any] = json.loads(os.environ["JOBQUEUE_SOAK"])

DEBUG = False
DATABASES: dict[str, Any] = {"default": _soak["database"]}
if "postgresql" in DATABASES["default"]["ENGINE"]:
    # So that people see whose connection was cut.
    DATABASES["default"]["OPTIONS"] = {
        **DATABASES["default"].get("OPTIONS", {}),
        "application_name": f"soak {os.getpid()}",
    }

_connection = {"DRIVER": "lab.soaking.watching.WatchedDriver", "DATABASE": "default"}
if _soak["cache"] is not None:
    CACHES["soak"] = _soak["cache"]  # noqa: F405
    _connection |= {"DRIVER": "lab.soaking.redis.WatchedRedisDriver", "CACHE": "soak", "PREFIX": "soak:"}

JOBQUEUE: dict[str, Any] = {
    "CONNECTIONS": {"default": _connection},
    "MODULES": ["jobs", "soaking.handlers"],
    "RETRY_AFTER": _soak["retry_after"],
    "BACKOFF": 0.3,
    # A worker that found its server gone looks again soon, so that a short soak sees many restarts.
    "QUEUE_ERROR_BACKOFF_CAP": 1,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    # Dead letters are meant, and so many that they would hide what is not.
    "loggers": {"django_jobqueue": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
}
