"""Servers of one's own, which a test may stop, kill and start again; where there are none, it is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from lab.servers import MariaDB, PostgreSQL, Redis, Server
from tests.conftest import REQUIRE_SERVICES

DATABASE = "jobqueue"

S = TypeVar("S", bound=Server)
R = TypeVar("R", bound=Redis)


def missing(what: str) -> None:
    """Skip loudly; where all services must be there, fail."""
    complaint = f"{what} is not installed, so no server of our own can be started"
    if REQUIRE_SERVICES:
        pytest.fail(complaint)
    pytest.skip(complaint)


def private_postgresql() -> Server:
    """A server that is not running yet."""
    if not PostgreSQL.is_installed():
        missing("PostgreSQL (initdb)")
    return PostgreSQL()


def private_mariadb() -> Server:
    if not MariaDB.is_installed():
        missing("MariaDB (mariadb-install-db, mariadbd)")
    return MariaDB()


def private_redis(kind: type[R] = Redis, **options: str) -> R:  # type: ignore[assignment]
    """With options of its configuration: ``cluster_enabled`` is "cluster-enabled"."""
    if not Redis.is_installed():
        missing("Redis (redis-server, or valkey-server)")
    return kind(**options)


@contextmanager
def running(server: S) -> Iterator[S]:
    """The server while it answers; then nothing is left of it."""
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.remove()
