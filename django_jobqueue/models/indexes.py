"""Indexes that hold the rows of one state only, where that keeps the planner from reading others by them."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from django.db.models import Q


class StateIndex(models.Index):
    """An index of the rows in one state on PostgreSQL, and of all rows elsewhere.

    Where statistics have never seen a ready job, PostgreSQL takes any index that begins with the state for as good
    as the one that has the order, and then sorts the whole queue at every reserve. SQLite could not use a partial
    index, since the state is a parameter; MySQL has none, and Django's own ``condition`` would warn of that.

    The partial index lacks the column: PostgreSQL takes a condition that is the index' own for met, so that the
    columns behind it would bound nothing.
    """

    def __init__(self, *, fields: list[str], name: str, state: str) -> None:
        super().__init__(fields=fields, name=name)
        self.state = state

    def deconstruct(self) -> tuple[str, Any, dict[str, Any]]:
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "state": self.state}

    def create_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **kwargs: Any
    ) -> Statement:
        index = models.Index(fields=self.fields, name=self.name)
        if schema_editor.connection.vendor == "postgresql":
            fields = [field for field in self.fields if field != "state"]
            index = models.Index(fields=fields, name=self.name, condition=Q(state=self.state))
        return index.create_sql(model, schema_editor, using, **kwargs)
