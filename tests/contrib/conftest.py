"""The backend under two aliases, on one queue connection; nothing of it is imported before a test asks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from django_jobqueue.drivers import Driver, connections
from tests.acceptance.conftest import processes
from tests.drivers.contract import DATABASE
from tests.helpers.fixtures import clock, database, heard, make_worker, memory, worker
from tests.helpers.redis import REDIS, wipe
from tests.helpers.redis import entry as redis_entry

__all__ = ["clock", "database", "driver", "heard", "make_worker", "memory", "processes", "worker"]

BACKEND = "django_jobqueue.contrib.tasks.JobQueueBackend"


@pytest.fixture(params=["memory", DATABASE, REDIS])
def driver(request: pytest.FixtureRequest, settings: Any) -> Iterator[Driver]:
    """The only queue connection, on each store."""
    on_redis = request.param == "redis"
    settings.JOBQUEUE = {"CONNECTIONS": {"default": redis_entry() if on_redis else {"DRIVER": request.param}}}
    yield connections["default"]
    if on_redis:
        wipe(connections["default"])


def configured(settings: Any, backend: str = BACKEND, **options: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": backend, "QUEUES": ["default", "mail", "low"], "OPTIONS": options},
        "mail": {"BACKEND": backend, "QUEUES": [], "OPTIONS": {"MAX_ATTEMPTS": 1}},
    }


@pytest.fixture
def use(settings: Any) -> Any:
    """Configure TASKS with a backend and its OPTIONS."""

    def use(backend: str = BACKEND, **options: Any) -> ModuleType:
        configured(settings, backend, **options)
        board = importlib.import_module("tests.contrib.board")
        board.seen.clear()
        return board

    return use


@pytest.fixture
def board(memory: Driver, use: Any) -> ModuleType:
    """The tasks, on the memory driver: for what no store makes different."""
    board: ModuleType = use()
    return board
