"""Where progress is kept in a test: beside the jobs, or in a cache of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.locmem import LocMemCache

from django_jobqueue.running import progress
from tests.helpers.waiting import DEADLINE

ALIAS = "progress"
OWN = "own"
FILES = "files"
SERVER = pytest.param("redis cache", marks=pytest.mark.redis)
BACKENDS: dict[str, dict[str, Any]] = {
    FILES: {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache"},
    "redis cache": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://{}:{}/{}".format(
            os.environ.get("REDIS_HOST", "127.0.0.1"),
            os.environ.get("REDIS_PORT", "6379"),
            os.environ.get("REDIS_DB", "0"),
        ),
        "OPTIONS": {
            "SOCKET_TIMEOUT": 10,
            "SOCKET_CONNECT_TIMEOUT": 5,
            "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
        },
    },
}


class TroubledCache(LocMemCache):
    """A cache in memory that does first, at each write and read, what a test says; ``calls`` are its writes."""

    calls: ClassVar[list[Call]] = []
    before_write: ClassVar[Callable[[], object]] = lambda: None
    before_read: ClassVar[Callable[[], object]] = lambda: None

    def set_many(self, data: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> list[Any]:
        TroubledCache.calls.append(Call(current_thread().name, timeout, dict(data)))
        TroubledCache.before_write()
        return list(super().set_many(data, timeout, version))

    def get_many(self, keys: Any, version: Any = None) -> dict[Any, Any]:
        TroubledCache.before_read()
        return dict(super().get_many(keys, version))


class Call(NamedTuple):
    thread: str
    timeout: float | None
    values: dict[str, list[Any]]

    @property
    def percents(self) -> list[int | None]:
        return [value[0] for value in self.values.values()]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the last reports may take longer than a worker waits for them."""
    monkeypatch.setattr(progress, "END_SECONDS", DEADLINE)


@pytest.fixture
def troubled(patient: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> type[TroubledCache]:
    """The cache for the progress of all connections."""
    backend = {"BACKEND": "tests.helpers.caching.TroubledCache", "LOCATION": uuid4().hex}
    settings.CACHES = {**settings.CACHES, ALIAS: backend}
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PROGRESS_CACHE": ALIAS}
    for name, value in (("calls", []), ("before_write", lambda: None), ("before_read", lambda: None)):
        monkeypatch.setattr(TroubledCache, name, value)
    return TroubledCache


@pytest.fixture(params=[OWN, FILES, SERVER])
def kept_in(patient: None, request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[str]:
    """The settings for where the progress of all connections is kept; fixtures of drivers keep them."""
    if request.param == OWN:
        yield OWN
        return
    options = {"KEY_PREFIX": f"test-{uuid4().hex}", **BACKENDS[request.param]}
    options.setdefault("LOCATION", str(tmp_path / "cache"))
    settings.CACHES = {**settings.CACHES, ALIAS: options}
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PROGRESS_CACHE": ALIAS}
    yield request.param
    if request.param != FILES:
        caches[ALIAS].delete_pattern("*")
