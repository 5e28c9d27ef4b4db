"""SQL that Django cannot say: rows behind a position, and which index to read."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import Expression
from django.db.models.sql.compiler import SQLCompiler
from django.db.models.sql.datastructures import BaseTable
from django.db.models.sql.where import AND

from ..jobs.records import Position
from ..jobs.times import to_microseconds
from ..models import Job
from ..models.fields import uuid_parameter


class _IsAfter(Expression):
    """MySQL uses an index for the long form only, PostgreSQL and SQLite for the short one."""

    conditional = True

    def __init__(self, position: Position) -> None:
        super().__init__(output_field=BooleanField())
        self.position = position

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        rank, moment = self.position.rank, to_microseconds(self.position.ready_at)
        job_id = uuid_parameter(self.position.id, connection.vendor)
        if connection.vendor == "mysql":
            return (
                "(`rank` > %s OR (`rank` = %s AND (ready_at > %s OR (ready_at = %s AND id > %s))))",
                (rank, rank, moment, moment, job_id),
            )
        return "((rank, ready_at, id) > (%s, %s, %s))", (rank, moment, job_id)


def start_behind(rows: QuerySet[Job], position: Position) -> None:
    """Let ``rows`` begin behind a position.

    Not by ``filter``, which compares an expression with TRUE where a database has no booleans: no index serves that.
    """
    rows.query.where.add(_IsAfter(position), AND)


class _HintedTable(BaseTable):
    index = ""

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        sql, params = super().as_sql(compiler, connection)
        return f"{sql} FORCE INDEX ({self.index})", params


def force_index(rows: QuerySet[Job], index: str) -> None:
    """Let MySQL read ``rows`` by this index: with a bound on the position it prefers worse plans."""
    alias = rows.query.get_initial_alias()
    table = rows.query.alias_map[alias]
    hinted = _HintedTable(table.table_name, alias)
    hinted.index = index
    rows.query.alias_map[alias] = hinted
