"""A replica from which nothing of a queue may be read, and a second database that has nothing but a queue's tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.helpers.aliases import database_alias

REPLICA = "replica"


class ReadsElsewhere:
    """As a project with a replica has it, which only the models of a queue are read from."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return REPLICA if model._meta.app_label == "django_jobqueue" else None

    def db_for_write(self, model: type, **hints: Any) -> str:
        return "default"

    def allow_relation(self, *objects: Any, **hints: Any) -> bool:
        return True


class Forbidden(BaseException):
    """Not caught by what copes with outages; raised in whichever thread asks."""


@pytest.fixture
def replica(settings: Any) -> Iterator[None]:
    """A database that nothing of a queue may be read from."""
    with database_alias(REPLICA):
        otherwise = BaseDatabaseWrapper.ensure_connection

        def ensure_connection(self: BaseDatabaseWrapper) -> None:
            if self.alias == REPLICA:
                raise Forbidden("the replica was asked")
            otherwise(self)

        with mock.patch.object(BaseDatabaseWrapper, "ensure_connection", new=ensure_connection):
            settings.DATABASE_ROUTERS = [ReadsElsewhere()]
            yield


@pytest.fixture
def second_database(tmp_path: Path) -> Iterator[str]:
    """The alias "queue", of a database with the queue's tables only."""
    name = f"{connection.settings_dict['NAME']}_queue"
    if connection.vendor == "sqlite":
        name = str(tmp_path / "queue.sqlite3")
    else:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            cursor.execute(f"CREATE DATABASE {name}")
    try:
        with database_alias("queue", NAME=name):
            call_command("migrate", "django_jobqueue", database="queue", verbosity=0)
            yield "queue"
    finally:
        if connection.vendor != "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")
