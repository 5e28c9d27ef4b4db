"""Further database aliases for one test: other options on the same database, or another database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest import mock

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def database_alias(alias: str, *, like: str = "default", **changes: Any) -> Iterator[BaseDatabaseWrapper]:
    """An alias as another one, with changes; ``OPTIONS`` are added to. Other threads close their own connections."""
    settings = deepcopy(connections[like].settings_dict)
    settings["OPTIONS"] |= changes.pop("OPTIONS", {})
    connections.databases[alias] = {**settings, **changes}
    try:
        with _allowed(alias):
            yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.databases[alias]


@contextmanager
def _allowed(alias: str) -> Iterator[None]:
    """Django's test classes forbid aliases that they do not name, in every thread."""
    otherwise = BaseDatabaseWrapper.ensure_connection

    def ensure_connection(self: BaseDatabaseWrapper) -> None:
        if self.alias == alias and self.connection is None:
            with self.wrap_database_errors:
                self.connect()
        else:
            otherwise(self)

    with mock.patch.object(BaseDatabaseWrapper, "ensure_connection", new=ensure_connection):
        yield
