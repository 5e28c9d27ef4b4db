"""Servers of one's own, which a test may stop, kill and start again; where there are none, it is skipped."""

from __future__ import annotations

import pytest

from lab.servers import MariaDB, PostgreSQL, Redis, Server
from tests.conftest import REQUIRE_SERVICES

DATABASE = "jobqueue"


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


def private_redis() -> Redis:
    if not Redis.is_installed():
        missing("Redis (redis-server, or valkey-server)")
    return Redis()
