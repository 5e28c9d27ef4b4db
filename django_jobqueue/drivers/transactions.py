"""Transactions of our own: short, at READ COMMITTED, repeated when they met another.

Inside a caller's transaction nothing of that applies: its level and its fate are the caller's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
# A generic plan made while the table was empty stays, and reads the whole queue.
CUSTOM_PLANS = "SET LOCAL plan_cache_mode = force_custom_plan"
WRITE_FIRST = "UPDATE django_jobqueue_job SET format = format WHERE id = ''"

# Deadlock victims succeed at once when repeated. Where each try has waited for a lock already, two are enough.
PAUSES = (0.005, 0.02, 0.05, 0.1, 0.2)
LONGEST_REPEATING = 2.0

_CONFLICT_STATES = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_CONFLICT_NUMBERS = {1205, 1213, 1020}  # lock wait timeout, deadlock, changed since last read
_SQLITE_BUSY, _SQLITE_LOCKED = 5, 6

_openings: WeakKeyDictionary[BaseDatabaseWrapper, tuple[object, tuple[str, ...]]] = WeakKeyDictionary()


def is_conflict(error: BaseException) -> bool:
    """Whether a database error only says that two transactions met: repeating may succeed."""
    if not isinstance(error, DatabaseError):
        return False
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) in _CONFLICT_STATES:
        return True
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in {_SQLITE_BUSY, _SQLITE_LOCKED}
    return bool(error.args) and error.args[0] in _CONFLICT_NUMBERS


@contextmanager
def own_transaction(alias: str) -> Iterator[None]:
    connection = connections[alias]
    outermost = not connection.in_atomic_block
    opening = opening_statements(connection) if outermost else ()
    with transaction.atomic(using=alias):
        if opening:
            with connection.cursor() as cursor:
                for statement in opening:
                    cursor.execute(statement)
        yield


@contextmanager
def own_look(alias: str) -> Iterator[None]:
    """For a single query, which needs a transaction only where its plan must not be a cached one."""
    connection = connections[alias]
    if connection.in_atomic_block or CUSTOM_PLANS not in opening_statements(connection):
        yield
        return
    with own_transaction(alias):
        yield


def repeating(alias: str, work: Callable[[], T]) -> T:
    """Run ``work`` outside of a caller's transaction again when it met another, or its connection was gone.

    ``work`` is one transaction, or one statement, that is safe to repeat.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        return work()
    started = time.monotonic()
    reconnected = False
    for pause in PAUSES:
        raw = connection.connection
        try:
            return work()
        except (DatabaseError, InterfaceError) as error:
            if is_conflict(error):
                if time.monotonic() - started > LONGEST_REPEATING:
                    raise
                time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads load, guards nothing
            elif not reconnected and isinstance(error, OperationalError | InterfaceError) and _is_gone(connection, raw):
                reconnected = True
            else:
                raise
    return work()


def _is_gone(connection: BaseDatabaseWrapper, raw: object) -> bool:
    """Whether ``raw``, which was in use, no longer answers; the next use has another connection then.

    Leaving a block of atomic(), Django closes one that cannot roll back, and opens the next at once.
    """
    if raw is not None and connection.connection is not raw:
        return True
    if connection.connection is None or connection.is_usable():
        return False
    connection.close()
    return True


def opening_statements(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    """What our transactions start with on this connection: asked of the server once for each that is opened."""
    connection.ensure_connection()
    raw, statements = _openings.get(connection, (None, ()))
    if raw is not connection.connection:
        statements = _OPENINGS.get(connection.vendor, _opening_other)(connection)
        _openings[connection] = (connection.connection, statements)
    return statements


def _opening_postgresql(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    level = getattr(connection, "isolation_level", None)
    name = _ask(connection, "SHOW default_transaction_isolation") if level is None else level.name
    statements = [] if _is_read_committed(name) else [READ_COMMITTED]
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        statements.append(CUSTOM_PLANS)
    return tuple(statements)


def _opening_mysql(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    variable = "tx_isolation" if getattr(connection, "mysql_is_mariadb", False) else "transaction_isolation"
    return () if _is_read_committed(_ask(connection, f"SELECT @@session.{variable}")) else (READ_COMMITTED,)


def _opening_other(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    """SQLite refuses to turn a read into a write when somebody wrote in between, whatever the timeout."""
    return (WRITE_FIRST,)


def _ask(connection: BaseDatabaseWrapper, question: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return str(cursor.fetchone()[0])


def _is_read_committed(name: str) -> bool:
    return name.replace("-", " ").replace("_", " ").upper() == "READ COMMITTED"


_OPENINGS: dict[str, Callable[[BaseDatabaseWrapper], tuple[str, ...]]] = {
    "postgresql": _opening_postgresql,
    "mysql": _opening_mysql,
}
