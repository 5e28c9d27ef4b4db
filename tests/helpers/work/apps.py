"""Where asked, every statement of the process is written down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created

STATEMENTS_VARIABLE = "JOBQUEUE_TEST_STATEMENTS"


class WorkConfig(AppConfig):
    name = "tests.helpers.work"

    def ready(self) -> None:
        if STATEMENTS_VARIABLE in os.environ:
            connection_created.connect(_listen)


def _listen(*, connection: Any, **sent: Any) -> None:
    if _write not in connection.execute_wrappers:
        connection.execute_wrappers.append(_write)


def _write(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
    with open(os.environ[STATEMENTS_VARIABLE], "a") as file:
        file.write(f"{time.monotonic()}\t{' '.join(sql.split())}\n")
    return execute(sql, params, many, context)
