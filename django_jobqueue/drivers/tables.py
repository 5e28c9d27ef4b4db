"""Whether a database has the tables of the queue."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import DEFAULT_DB_ALIAS, connections, models


def missing_tables(
    database: str, needed: Iterable[type[models.Model]], outages: tuple[type[BaseException], ...], what_for: str = ""
) -> list[str]:
    """That the database is not reachable, or lacks tables, with the cure; nothing when all is well."""
    try:
        with connections[database].cursor() as cursor:
            tables = connections[database].introspection.table_names(cursor)
    except outages as error:
        return [f"The database {database!r} is not reachable: {' '.join(str(error).split())}"]
    if {model._meta.db_table for model in needed} <= set(tables):
        return []
    option = "" if database == DEFAULT_DB_ALIAS else f" --database {database}"
    return [
        f"The tables of django_jobqueue are missing in the database {database!r}{what_for}; "
        f"run: manage.py migrate django_jobqueue{option}"
    ]
