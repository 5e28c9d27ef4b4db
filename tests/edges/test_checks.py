"""The system checks, one test for each id."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.db import connection, connections

from django_jobqueue import checks
from django_jobqueue.drivers import connections as queue_connections

TAG = "jobqueue"


def found(databases: list[str] | None = None) -> list[CheckMessage]:
    """Every message of ours, but for those about handlers that other tests left in this process."""
    messages = run_checks(tags=[TAG] if databases is None else [TAG, Tags.database], databases=databases)
    return [
        message
        for message in messages
        if str(message.id).startswith("django_jobqueue")
        and not (message.id.endswith("W002") and "tests." in message.msg)
    ]


def ids(databases: list[str] | None = None) -> list[str]:
    return [str(message.id).removeprefix("django_jobqueue.") for message in found(databases)]


def test_a_project_in_order_has_no_messages() -> None:
    assert found() == []
    assert [message for message in run_checks() if "E00" in message.id] == []


@pytest.mark.django_db
def test_nothing_is_asked_unless_databases_are_named(django_assert_num_queries: Callable[[int], Any]) -> None:
    with django_assert_num_queries(0):
        found()


# Settings and connections


def test_every_wrong_key_is_an_error(settings: Any) -> None:
    settings.JOBQUEUE = {"TYPO": 1, "MAX_ATTEMPTS": 0}
    first, second = found()
    assert (first.id, second.id) == ("django_jobqueue.E001", "django_jobqueue.E001")
    assert "'TYPO'" in first.msg
    assert "MAX_ATTEMPTS" in second.msg
    settings.JOBQUEUE = []
    assert ids() == ["E001"]


@pytest.mark.parametrize(
    "options",
    [
        {"DRIVER": "postal"},
        {"DRIVER": "tests.edges.absent.Driver"},
        {"DRIVER": "django_jobqueue.jobs.records.NewJob"},
        {"DRIVER": "database", "DATABASE": "absent"},
        {"DRIVER": "database", "TYPO": 1},
    ],
)
def test_a_connection_that_cannot_be_made_is_an_error(settings: Any, options: dict[str, Any]) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "other": options}}
    (message,) = found()
    assert message.id == "django_jobqueue.E002"


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (None, []),
        ({"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "/nowhere"}, []),
        ({"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, ["W011"]),
        ({"BACKEND": "django.core.cache.backends.dummy.DummyCache"}, ["W011"]),
        ({"BACKEND": "tests.edges.absent.Cache"}, ["E007"]),
    ],
)
def test_a_cache_for_progress_is_one_that_processes_share(
    settings: Any, cache: dict[str, Any] | None, expected: list[str]
) -> None:
    if cache is not None:
        settings.CACHES = {**settings.CACHES, "shared": cache}
    settings.JOBQUEUE = {"PROGRESS_CACHE": None if cache is None else "shared"}
    assert ids() == expected


def test_a_cache_for_progress_that_is_not_there_is_an_error(settings: Any) -> None:
    settings.JOBQUEUE = {"PROGRESS_CACHE": "absent"}
    (message,) = found()
    assert message.id == "django_jobqueue.E007"
    assert "'absent'" in message.msg


def test_two_connections_on_one_database_are_an_error(settings: Any) -> None:
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {"DRIVER": "database"}, "other": {"DRIVER": "database", "DATABASE": "default"}}
    }
    (message,) = found()
    assert message.id == "django_jobqueue.E003"
    assert "'default' and 'other'" in message.msg


def test_a_commit_of_no_database_is_an_error(settings: Any) -> None:
    settings.JOBQUEUE = {"AFTER_COMMIT": "absent"}
    assert ids() == ["E004"]


def test_a_queue_in_memory_is_for_development(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    settings.DEBUG = False
    assert ids() == ["W001"]
    settings.DEBUG = True
    assert ids() == []


# Handlers


def test_a_job_module_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("in a jobs.py")

    monkeypatch.setattr(checks, "load_handlers", broken)
    (message,) = found()
    assert message.id == "django_jobqueue.W007"
    assert "ZeroDivisionError: in a jobs.py" in message.msg


@pytest.fixture
def hidden(register: Callable[..., Any]) -> Any:
    """A handler whose module nobody names."""

    @register(name="hidden.work")
    def work() -> None: ...

    work.definition.func.__module__ = "hidden"
    return work


def test_a_handler_outside_of_the_job_modules_is_a_warning(hidden: Any) -> None:
    (message,) = found()
    assert message.id == "django_jobqueue.W002"
    assert "'hidden.work' is defined in hidden" in message.msg


@pytest.mark.parametrize("how", ["handler", "module", "submodule"])
def test_a_handler_that_a_job_module_imports_is_found(hidden: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = sys.modules["shop.jobs"]
    if how == "submodule":
        hidden.definition.func.__module__ = "shop.jobs.mail"
    else:
        monkeypatch.setattr(shop, "imported", hidden if how == "handler" else ModuleType("hidden"), raising=False)
    assert found() == []


# Timeouts


def test_workers_in_a_web_server_cannot_end_every_job(settings: Any) -> None:
    settings.DEBUG = False
    settings.JOBQUEUE = {"EMBEDDED_WORKERS": 2}
    (message,) = found()
    assert message.id == "django_jobqueue.W008"
    assert "computes in C" in message.msg
    settings.DEBUG = True
    assert ids() == []


@pytest.mark.parametrize("workers", [None, 0])
def test_without_workers_in_the_web_server_there_is_nothing_to_end(settings: Any, workers: int | None) -> None:
    settings.DEBUG = False
    settings.JOBQUEUE = {"EMBEDDED_WORKERS": workers}
    assert ids() == []


# Databases


@pytest.fixture
def sqlite(tmp_path: Path, settings: Any, django_db_blocker: Any) -> Iterator[Callable[..., None]]:
    """Make ``other`` the database of the queue: a SQLite file with these OPTIONS."""
    known = {"default": connections.databases["default"]}

    def use(name: str | None = None, **options: Any) -> None:
        other = {"ENGINE": "django.db.backends.sqlite3", "NAME": name or str(tmp_path / "db"), "OPTIONS": options}
        connections.databases["other"] = connections.configure_settings({**known, "other": other})["other"]
        settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": "other"}}}

    with django_db_blocker.unblock():
        yield use
    if connections["other"].connection is not None:
        connections["other"].connection.close()  # Django's own close() keeps a database in memory
    del connections["other"]
    del connections.databases["other"]
    queue_connections.reset()


WAL = "PRAGMA journal_mode=WAL;"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"init_command": WAL, "transaction_mode": "IMMEDIATE", "timeout": 20}, []),
        ({"init_command": WAL, "transaction_mode": "exclusive"}, []),
        ({"transaction_mode": "IMMEDIATE"}, ["W004"]),
        ({"init_command": WAL}, ["W005"]),
        ({"init_command": WAL, "transaction_mode": "DEFERRED", "timeout": 4.5}, ["W005", "W006"]),
        ({"timeout": 1}, ["W004", "W005", "W006"]),
    ],
)
def test_a_sqlite_that_does_not_suit_workers_is_a_warning_each(
    sqlite: Callable[..., None], options: dict[str, Any], expected: list[str]
) -> None:
    sqlite(**options)
    assert ids(["other"]) == expected
    assert ids(["default"]) == []
    assert ids() == []


def test_a_sqlite_in_memory_has_nothing_to_mend(sqlite: Callable[..., None]) -> None:
    sqlite(":memory:")
    assert ids(["other"]) == []


def test_a_database_without_skip_locked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "mysql")
    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", False)
    assert ids(["default"]) == ["W003"]


def test_a_database_that_is_out_of_reach_is_left_to_the_command_that_needs_it(
    sqlite: Callable[..., None], tmp_path: Path
) -> None:
    sqlite(str(tmp_path / "absent" / "db"))
    assert ids(["other"]) == []
