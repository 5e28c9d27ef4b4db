"""Columns and expressions that mean the same on every database.

Moments are BIGINT microseconds in UTC, because neither Django's own date columns nor ``Now()`` agree over
databases, ``USE_TZ`` and server time zones. Names compare exactly, where MySQL would fold case and accents.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import NotSupportedError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Combinable, Func, Value
from django.db.models.sql.compiler import SQLCompiler
from django.utils.timezone import is_naive, make_aware

from ..exceptions import InvalidOption
from ..jobs.times import from_microseconds, to_microseconds

if TYPE_CHECKING:
    _CharField = models.CharField[str, str]
    _UUIDField = models.UUIDField[Any, Any]
    _BigIntegerField = models.BigIntegerField[Any, Any]
else:
    _CharField, _UUIDField, _BigIntegerField = models.CharField, models.UUIDField, models.BigIntegerField

STORE_NOW_SQL = {
    # statement_timestamp(), since a volatile clock keeps PostgreSQL from using an index.
    "postgresql": "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "sqlite": "((CAST(strftime('%s', 'now') AS INTEGER) * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER))"
    " * 1000)",
}


def store_now_sql(vendor: str) -> str:
    """The SQL of the store's clock, in microseconds; no percent sign of it is doubled."""
    try:
        return STORE_NOW_SQL[vendor]
    except KeyError:
        raise NotSupportedError(
            f"django_jobqueue does not run on {vendor}; use PostgreSQL, MySQL, MariaDB or SQLite."
        ) from None


class ClockField(_BigIntegerField):
    """A moment of the store's clock: an aware datetime in UTC in Python, microseconds in the table."""

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, expression: Any, connection: BaseDatabaseWrapper) -> datetime | None:
        return None if value is None else from_microseconds(value)

    def to_python(self, value: Any) -> datetime | None:
        return from_microseconds(value) if isinstance(value, int) else value

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return to_microseconds(aware(value))
        return value

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else str(self.get_prep_value(value))


def aware(moment: datetime) -> datetime:
    """A naive datetime is local time under ``USE_TZ = False``, and an error otherwise."""
    if not is_naive(moment):
        return moment
    if settings.USE_TZ:
        raise InvalidOption(f"{moment!r} has no time zone, and USE_TZ is on; pass an aware datetime.")
    return make_aware(moment)


class StoreNow(Func):
    """The store's time at the statement, plus whole ``microseconds``."""

    arity = 0

    def __init__(self, plus: int = 0, **extra: Any) -> None:
        super().__init__(output_field=ClockField(), **extra)
        self.plus = plus

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, *args: Any, **extra: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        sql = clock_sql(connection.vendor, None)
        return (f"({sql} + %s)", (self.plus,)) if self.plus else (sql, ())


def store_clock(now: datetime | None, plus: int = 0) -> Combinable:
    """The store's time, or ``now`` where a caller owns the clock, plus whole microseconds."""
    if now is None:
        return StoreNow(plus)
    return Value(to_microseconds(now) + plus, output_field=ClockField())


def clock_sql(vendor: str, now: datetime | None) -> str:
    """The same in SQL that is written by hand and takes parameters."""
    return store_now_sql(vendor).replace("%", "%%") if now is None else str(to_microseconds(now))


class JobIdField(_UUIDField):
    """A UUID; on MySQL and MariaDB 32 characters, since MariaDB's own uuid type sorts version 4 by its last group."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        if connection.vendor == "mysql":
            return "char(32) CHARACTER SET ascii COLLATE ascii_bin"
        return super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        value = super().get_db_prep_value(value, connection, prepared)
        return value.hex if connection.vendor == "mysql" and isinstance(value, uuid.UUID) else value


def uuid_parameter(value: uuid.UUID, vendor: str) -> uuid.UUID | str:
    """A UUID as a parameter of SQL that is written by hand."""
    return value if vendor == "postgresql" else value.hex


def as_uuid(value: uuid.UUID | str) -> uuid.UUID:
    """A UUID read by SQL that is written by hand."""
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


class ExactCharField(_CharField):
    """Text that compares by code point on every database."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        column = super().db_type(connection)
        if connection.vendor == "mysql":
            return f"{column} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        return column
