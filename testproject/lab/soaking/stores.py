"""A database of the soak's own, on each kind of store: made, read at the end, cut, and removed.

What a soak empties and restarts is never the project's: on a server it makes a database beside the configured one,
or runs a server of its own; on SQLite it makes a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from django.db import DatabaseError, InterfaceError
from django.db import connections as databases
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from django.utils.module_loading import import_string

from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.payloads import decode

from .. import servers
from .cases import Content, DeadLetter, Effect, Waiting
from .kinds import EFFECT_TABLE

OUTAGES = (DatabaseError, InterfaceError)
IS_OPEN = "finished_at IS NULL"
SETTINGS = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")


class Unsupported(Exception):
    """This store, or this machine, cannot do what was asked for; the text says why."""


class OwnDatabase(ABC):
    """``settings`` is the entry of DATABASES by which the soak's processes use it."""

    has_connections: ClassVar[bool] = True
    #: Whether a dispatch is part of its caller's transaction.
    joins_transactions: ClassVar[bool] = True
    #: The entry of CACHES that holds the jobs, where rows do not.
    cache: dict[str, Any] | None = None
    #: Whether a stopped process may hold what all others need.
    stops_concern_all: ClassVar[bool] = False
    server_class: ClassVar[type[servers.Server] | None] = None

    def __init__(self, configured: Mapping[str, Any], folder: Path, *, own_server: bool) -> None:
        self.server = self._new_server() if own_server else None
        self.folder = folder
        self._base = self._configured(configured)
        self.settings = self.own_settings(self._base)
        self._is_made = False
        self._connection: BaseDatabaseWrapper | None = None

    # Making

    def create(self) -> None:
        if self.server is not None:
            self.server.prepare()
            self.server.start()
        self.make()
        self._is_made = True

    def make_effect_table(self) -> None:
        self.query(f"CREATE TABLE {EFFECT_TABLE} (job_key varchar(100) NOT NULL, token varchar(36) NOT NULL)")

    def remove(self) -> None:
        self.close()
        if self.server is not None:
            self.server.remove()
        elif self._is_made:
            self.drop()

    @abstractmethod
    def own_settings(self, base: dict[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def make(self) -> None:
        """Raises Unsupported when there is one of that name already."""

    @abstractmethod
    def drop(self) -> None: ...

    # Asking

    def connect(self, **changes: Any) -> BaseDatabaseWrapper:
        """A connection of the caller's, to be closed by it."""
        handler = ConnectionHandler({"default": {**deepcopy(self.settings), **changes}})
        return handler.create_connection("default")

    def query(self, sql: str, parameters: Any = None) -> list[Any]:
        """Run a statement on a connection that is kept, and opened anew when it was lost."""
        if self._connection is None:
            self._connection = self.connect()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return list(cursor.fetchall()) if cursor.description else []
        except OUTAGES:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def left(self) -> int | None:
        """How many jobs are in the queue, and batches, whose callbacks are to come; None while nobody answers."""
        counted = "SELECT (SELECT COUNT(*) FROM django_jobqueue_job) + "
        try:
            return int(self.query(f"{counted}(SELECT COUNT(*) FROM django_jobqueue_batch WHERE {IS_OPEN})")[0][0])
        except OUTAGES:
            return None

    def content(self) -> Content:
        jobs = self.query("SELECT payload, format, state FROM django_jobqueue_job")
        letters = self.query("SELECT payload, format, attempts, exception_class FROM django_jobqueue_failedjob")
        batches = self.query(f"SELECT name FROM django_jobqueue_batch WHERE {IS_OPEN}")
        return Content(
            waiting=[Waiting(key_of(*row[:2]), row[2]) for row in jobs],
            dead_letters=[DeadLetter(key_of(*row[:2]), *row[2:]) for row in letters],
            effects=[Effect(*row) for row in self.query(f"SELECT job_key, token FROM {EFFECT_TABLE}")],
            batches=[row[0] for row in batches],
        )

    @abstractmethod
    def version(self) -> str: ...

    # Disturbing

    def cut(self, random: Random) -> int:
        """End one connection of another process, or all; return how many were ended."""
        raise Unsupported("SQLite has no connections that could be cut")

    @abstractmethod
    def begin_long_transaction(self, cursor: Any) -> None:
        """Begin one that sees the database as it is now, to its end."""

    # Details

    def _new_server(self) -> servers.Server:
        if self.server_class is None:
            raise Unsupported("SQLite has no server that could be restarted")
        if not self.server_class.is_installed():
            raise Unsupported(f"the programs of a {self.server_class.__name__} server are not installed here")
        return self.server_class()

    def _configured(self, configured: Mapping[str, Any]) -> dict[str, Any]:
        settings = {key: deepcopy(configured[key]) for key in SETTINGS if key in configured}
        return settings if self.server is None else {**settings, **self.server.settings()}

    def _cut_some(self, ids: list[int], statement: str, random: Random) -> int:
        """Mostly one; now and then all of them at once."""
        chosen = ids if random.random() < ALL_AT_ONCE else ids and [random.choice(ids)]
        done = 0
        for session in chosen:
            try:
                self.query(statement, [session])
            except OUTAGES:
                continue  # it has ended by itself
            done += 1
        return done


# The share of disturbances that hit all at once.
ALL_AT_ONCE = 0.15


class PostgreSQL(OwnDatabase):
    server_class = servers.PostgreSQL

    def own_settings(self, base: dict[str, Any]) -> dict[str, Any]:
        return {**base, "NAME": f"{base['NAME']}_soak"}

    def make(self) -> None:
        connection = self.connect(NAME="postgres")
        name = self.settings["NAME"]
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
                _refuse_existing(name, bool(cursor.fetchall()))
                cursor.execute(f"CREATE DATABASE {connection.ops.quote_name(name)}")
        finally:
            connection.close()

    def drop(self) -> None:
        connection = self.connect(NAME="postgres")
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {connection.ops.quote_name(self.settings['NAME'])} WITH (FORCE)")
        finally:
            connection.close()

    def version(self) -> str:
        return f"PostgreSQL {self.query('SHOW server_version')[0][0]}"

    def cut(self, random: Random) -> int:
        found = self.query(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND application_name LIKE 'soak %%' ORDER BY pid",
            [],
        )
        return self._cut_some([row[0] for row in found], "SELECT pg_terminate_backend(%s)", random)

    def begin_long_transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")


class MySQL(OwnDatabase):
    server_class = servers.MariaDB

    def own_settings(self, base: dict[str, Any]) -> dict[str, Any]:
        return {**base, "NAME": f"{base['NAME']}_soak"}

    def make(self) -> None:
        connection = self.connect(NAME="")
        name = self.settings["NAME"]
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", [name])
                _refuse_existing(name, bool(cursor.fetchall()))
                cursor.execute(f"CREATE DATABASE {connection.ops.quote_name(name)} CHARACTER SET utf8mb4")
        finally:
            connection.close()

    def drop(self) -> None:
        connection = self.connect(NAME="")
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {connection.ops.quote_name(self.settings['NAME'])}")
        finally:
            connection.close()

    def version(self) -> str:
        return f"MySQL or MariaDB {self.query('SELECT VERSION()')[0][0]}"

    def cut(self, random: Random) -> int:
        found = self.query(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY id"
        )
        return self._cut_some([row[0] for row in found], "KILL %s", random)

    def begin_long_transaction(self, cursor: Any) -> None:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")


class SQLite(OwnDatabase):
    has_connections = False
    stops_concern_all = True

    def own_settings(self, base: dict[str, Any]) -> dict[str, Any]:
        return {**base, "NAME": str(self.folder / "soak.sqlite3")}

    def make(self) -> None:
        return  # by the first that opens it

    def drop(self) -> None:
        return  # with its folder

    def version(self) -> str:
        return f"SQLite {self.query('SELECT sqlite_version()')[0][0]}"

    def begin_long_transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN")


# By path: its client library need not be installed where it is not in use. Each keeps dead letters in one of STORES.
OTHERS = {"Redis": "lab.soaking.redis.RedisQueue"}
STORES = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}


def own_database(driver: Driver, folder: Path, *, own_server: bool) -> OwnDatabase:
    """One like the database of a connection; raises Unsupported."""
    if not driver.is_shared or driver.database is None:
        raise Unsupported(f"soak cannot try the connection {driver.alias!r} ({type(driver).__name__}) yet")
    vendor = databases[driver.database].vendor
    if vendor not in STORES:
        raise Unsupported(f"soak cannot try {vendor}")
    configured = databases[driver.database].settings_dict
    if driver.supports_transactions:
        return STORES[vendor](configured, folder, own_server=own_server)
    own_class: type[OwnDatabase] = import_string(OTHERS[driver.kind])
    return own_class(STORES[vendor](configured, folder, own_server=False))  # type: ignore[call-arg, arg-type]


def _refuse_existing(name: str, exists: bool) -> None:
    if exists:
        raise Unsupported(
            f"there is a database {name!r} already, which soak would make and remove: another soak is running, or one "
            "was killed; drop it then"
        )


def key_of(payload: str, format: int) -> str:
    args, _ = decode(payload, format)
    return str(args[0])
