"""Fixtures of the tests that dispatch and run jobs in this process; the conftest of a folder imports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import job, signals
from django_jobqueue.dispatching.handler import Handler
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.registry import registry
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import DATABASE, Clock
from tests.helpers.aliases import database_alias
from tests.helpers.listening import Heard

FLAKY = "tests.helpers.flaky.FlakyDriver"


@pytest.fixture(params=["memory", DATABASE])
def driver(request: pytest.FixtureRequest, settings: Any) -> Driver:
    """The only queue connection, on each driver."""
    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": request.param}}}
    return connections["default"]


@pytest.fixture
def memory(settings: Any) -> Driver:
    """The only queue connection, in memory: for what no store makes different."""
    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    return connections["default"]


@pytest.fixture
def database(transactional_db: None, settings: Any) -> Driver:
    """The only queue connection, in the database: for what only transactions make true."""
    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": "database"}}}
    return connections["default"]


@pytest.fixture
def clock() -> Clock:
    """The store's time of ``work_once``; ahead of the real one, by which jobs are dispatched."""
    clock = Clock()
    clock.now = datetime.now(UTC) + timedelta(minutes=1)
    return clock


@pytest.fixture
def register() -> Iterator[Callable[..., Callable[[Callable[..., Any]], Handler[..., Any, Any]]]]:
    """``@job`` for functions inside of a test, forgotten at its end; the default name is "tests." and theirs."""
    names = []

    def register_with(**options: Any) -> Callable[[Callable[..., Any]], Handler[..., Any, Any]]:
        def decorate(func: Callable[..., Any]) -> Handler[..., Any, Any]:
            func.__qualname__ = func.__name__  # as if it stood at the top of its module
            handler = job(**{"name": f"tests.{func.__name__}", **options})(func)
            names.append(handler.definition.name)
            return handler

        return decorate

    yield register_with
    for name in names:
        registry.unregister(name)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Every signal that is sent during the test, in order."""
    heard = Heard()
    for name in signals.__all__ if hasattr(signals, "__all__") else dir(signals):
        signal = getattr(signals, name)
        if isinstance(signal, signals.Signal):
            heard.listen(name, signal)
    yield heard
    heard.stop()


@pytest.fixture
def make_worker() -> Iterator[Callable[..., Worker]]:
    """Workers on the configured connections; their keepers end with the test."""
    made = []

    def make(**options: Any) -> Worker:
        given = {name: options.pop(name) for name in ("stopping", "budget", "on_abandoned") if name in options}
        worker = Worker(WorkerOptions.from_settings(**options), **given)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker._keeper.end()


@pytest.fixture
def worker(make_worker: Callable[..., Worker]) -> Worker:
    return make_worker()


@pytest.fixture
def archive(transactional_db: None, tmp_path: Path) -> Iterator[str]:
    """A second database, a SQLite file with the tables of the queue."""
    from django_jobqueue.models import Batch, BatchMember, FailedJob, Job, Progress, Result

    place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "archive.sqlite3")}
    with database_alias("archive", **place) as connection:
        connection.settings_dict["OPTIONS"] = {}
        with connection.schema_editor() as editor:
            for model in (Job, FailedJob, Result, Batch, BatchMember, Progress):
                editor.create_model(model)
        yield connection.alias
