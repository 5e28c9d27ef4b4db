"""System checks. Only those that Django runs with ``--database`` ask a database anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from django.conf import settings as django_settings
from django.core.cache import caches
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.db import connections as databases_by_alias
from django.db.backends.base.base import BaseDatabaseWrapper

from .conf import DEFAULT, get_settings, read
from .dispatching.discovery import job_modules, load_handlers
from .drivers import Driver, connections
from .jobs.definition import Definition
from .jobs.registry import registry
from .running.timeouts import are_limited, unreached

TAG = "jobqueue"
SHORTEST_SQLITE_TIMEOUT = 5


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """E001: what is wrong with the JOBQUEUE setting, each key by itself."""
    return [_error("E001", problem) for problem in _problems()]


def check_connections(**kwargs: Any) -> list[CheckMessage]:
    """E002 to E007, W001, W009, W011: connections that cannot work, or not where they are used."""
    if _problems():
        return []
    found: list[CheckMessage] = []
    drivers = []
    for alias in connections:
        try:
            drivers.append(connections[alias])
        except ImproperlyConfigured as error:
            found.append(_error("E002", str(error)))
    found += _check_progress_cache(get_settings().progress_cache)
    after_commit = get_settings().after_commit
    if after_commit not in databases_by_alias:
        found.append(
            _error(
                "E004",
                f'JOBQUEUE["AFTER_COMMIT"] names the database {after_commit!r}, which DATABASES lacks.',
                "Name the alias whose commit a dispatch to another store waits for.",
            )
        )
    found += _check_databases_are_used_once(drivers) + _check_memory(drivers)
    return found + _check_prefixes(drivers) + _check_keys_are_used_once(drivers)


def _check_databases_are_used_once(drivers: Sequence[Driver]) -> list[CheckMessage]:
    first: dict[str | None, str] = {}
    found: list[CheckMessage] = []
    for driver in drivers:
        if driver.supports_transactions and first.setdefault(driver.database, driver.alias) != driver.alias:
            found.append(
                _error(
                    "E003",
                    f"The queue connections {first[driver.database]!r} and {driver.alias!r} have one database, "
                    f"{driver.database!r}, so that each would run the other's jobs.",
                    "Remove one of them: a database holds any number of queues.",
                )
            )
    return found


def _check_progress_cache(alias: str | None) -> list[CheckMessage]:
    """Whether a page sees what a worker of another process writes."""
    if alias is None:
        return []
    if alias not in django_settings.CACHES:
        return [
            _error("E007", f'JOBQUEUE["PROGRESS_CACHE"] names the cache {alias!r}, which CACHES lacks.'),
        ]
    try:
        cache = caches[alias]
    except Exception as error:  # of whatever class the backend, or what it imports, raises
        return [_error("E007", f'The cache {alias!r}, which JOBQUEUE["PROGRESS_CACHE"] names: {error}')]
    if not isinstance(cache, LocMemCache | DummyCache):
        return []
    return [
        _warning(
            "W011",
            f'The cache {alias!r}, which JOBQUEUE["PROGRESS_CACHE"] names, keeps nothing for other processes: what a '
            "worker says of the progress of its jobs is seen by no page.",
            "Name a cache that all processes share, or remove the key: progress is then kept beside the jobs.",
        )
    ]


def _check_memory(drivers: Sequence[Driver]) -> list[CheckMessage]:
    if django_settings.DEBUG:
        return []
    return [
        _warning(
            "W001",
            "The default queue connection lives in the memory of one process: no worker of another process runs its "
            "jobs, and a restart loses them.",
            'Use {"DRIVER": "database"} in production.',
        )
        for driver in drivers
        if driver.alias == DEFAULT and not driver.is_shared
    ]


def _check_prefixes(drivers: Sequence[Driver]) -> list[CheckMessage]:
    """Whether each connection that shares a server with other projects has a name of its own there."""
    found: list[CheckMessage] = []
    for driver in drivers:
        if driver.namespace is None or driver.namespace.is_chosen:
            continue
        text = (
            f"The queue connection {driver.alias!r} has no PREFIX: another project on the same server would run its "
            "jobs, and this one the other's."
        )
        hint = 'Give it one of its own, such as "PREFIX": "shop:".'
        found.append(_warning("W009", text, hint) if django_settings.DEBUG else _error("E005", text, hint))
    return found


def _check_keys_are_used_once(drivers: Sequence[Driver]) -> list[CheckMessage]:
    first: dict[tuple[str, str], str] = {}
    found: list[CheckMessage] = []
    for driver in drivers:
        if driver.namespace is None:
            continue
        place = driver.namespace.server, driver.namespace.prefix
        if first.setdefault(place, driver.alias) != driver.alias:
            found.append(
                _error(
                    "E006",
                    f"The queue connections {first[place]!r} and {driver.alias!r} have one server and the prefix "
                    f"{place[1]!r}, so that each would run the other's jobs.",
                    "Give each a PREFIX of its own, or remove one: a connection holds any number of queues.",
                )
            )
    return found


def check_handlers(**kwargs: Any) -> list[CheckMessage]:
    """W007, W002: job modules that cannot be imported, and handlers that a worker may not find."""
    if _problems():
        return []
    try:
        load_handlers()
    except Exception as error:
        return [
            _warning(  # no error, which would stop the web site: a broken jobs.py stops the worker only
                "W007",
                f"A job module cannot be imported: {type(error).__name__}: {error}",
                "Run manage.py queue_work to see the traceback.",
            )
        ]
    modules = [sys.modules[path] for path in job_modules() if path in sys.modules]
    return [
        _warning(
            "W002",
            f"The handler {definition.name!r} is defined in {definition.func.__module__}, which is no job module, so "
            "a worker finds it only when something else imports that module.",
            'Move it to the jobs.py of an app, import it there, or add the module to JOBQUEUE["MODULES"].',
        )
        for definition in registry.definitions()
        if not _is_found(definition, modules)
    ]


def check_timeouts(**kwargs: Any) -> list[CheckMessage]:
    """W008: workers inside a web server, where a timeout does not end every job."""
    if _problems() or django_settings.DEBUG or not get_settings().embedded_workers or not are_limited():
        return []
    return [
        _warning(
            "W008",
            f"Workers inside a web server run jobs in threads, where no timeout ends {unreached(in_threads=True)}: "
            "it would hold its worker for ever.",
            "Run manage.py queue_work --processes instead of EMBEDDED_WORKERS, or give what these jobs wait for "
            "a timeout of its own.",
        )
    ]


def _is_found(definition: Definition, modules: Sequence[ModuleType]) -> bool:
    """Whether a job module defines the handler, contains its module, or imports either."""
    home = definition.func.__module__
    for module in modules:
        if home == module.__name__ or home.startswith(f"{module.__name__}."):
            return True
        for value in vars(module).values():
            if getattr(value, "definition", None) is definition:
                return True
            if isinstance(value, ModuleType) and value.__name__ == home:
                return True
    return False


def check_databases(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W003 to W006, W010: what the stores of the queue connections lack. Asks those with a database that is named."""
    if not databases or _problems():
        return []
    found: list[CheckMessage] = []
    for alias in connections:
        try:
            driver = connections[alias]
        except ImproperlyConfigured:
            continue  # E002 says so
        database = driver.database
        if database is None or database not in databases:
            continue
        if not driver.supports_transactions:
            found += _check_risks(driver)
            continue
        connection = databases_by_alias[database]
        try:
            found += _check_sqlite(connection) if connection.vendor == "sqlite" else _check_locks(connection)
        except OperationalError:
            continue  # not reachable: the command that needs it says so
    return found


def _check_risks(driver: Driver) -> list[CheckMessage]:
    try:
        return [_warning("W010", risk, cure) for risk, cure in driver.risks()]
    except driver.outages:
        return []  # not reachable: the command that needs it says so


def _check_locks(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    if connection.features.has_select_for_update_skip_locked:
        return []
    return [
        _warning(
            "W003",
            f"The database {connection.alias!r} has no SELECT … FOR UPDATE SKIP LOCKED, so workers take the same jobs "
            "in turn and wait for each other.",
            "Use PostgreSQL, MariaDB 10.6 or MySQL 8.0.11, or newer.",
        )
    ]


def _check_sqlite(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    """Writers that block readers, or fail at once where they should wait: "database is locked"."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        journal_mode = str(cursor.fetchone()[0]).lower()
    if journal_mode == "memory":  # an in-memory database, as in tests: it has no other mode
        return []
    options = connection.settings_dict.get("OPTIONS", {})
    timeout = options.get("timeout", SHORTEST_SQLITE_TIMEOUT)
    where = f'DATABASES["{connection.alias}"]["OPTIONS"]'
    found: list[CheckMessage] = []
    if journal_mode != "wal":
        found.append(
            _warning(
                "W004",
                f"The SQLite database {connection.alias!r} has the journal mode {journal_mode!r}: readers and writers "
                "block each other.",
                f'Set {where}["init_command"] = "PRAGMA journal_mode=WAL;".',
            )
        )
    if str(options.get("transaction_mode", "")).upper() not in {"IMMEDIATE", "EXCLUSIVE"}:
        found.append(
            _warning(
                "W005",
                f"Transactions of the SQLite database {connection.alias!r} begin as readers: one that writes later "
                'fails at once with "database is locked" when a worker wrote meanwhile.',
                f'Set {where}["transaction_mode"] = "IMMEDIATE".',
            )
        )
    if timeout < SHORTEST_SQLITE_TIMEOUT:
        found.append(
            _warning(
                "W006",
                f"The SQLite database {connection.alias!r} gives up on a lock after {timeout:g} s.",
                f'Set {where}["timeout"] = 20.',
            )
        )
    return found


def connect() -> None:
    register(check_settings, TAG)
    register(check_connections, TAG)
    register(check_handlers, TAG)
    register(check_timeouts, TAG)
    register(check_databases, Tags.database)  # and no other tag: by any other, Django 6.1 asks every database


def _problems() -> list[str]:
    return read(getattr(django_settings, "JOBQUEUE", {}))[1]


def _error(number: str, text: str, hint: str | None = None) -> Error:
    return Error(text, hint=hint, id=f"django_jobqueue.{number}")


def _warning(number: str, text: str, hint: str) -> Warning:
    return Warning(text, hint=hint, id=f"django_jobqueue.{number}")
