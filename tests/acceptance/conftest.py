"""Real processes on the test's database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.marks import Marks
from tests.helpers.processes import Processes, database_settings


@pytest.fixture
def processes(transactional_db: None, tmp_path: Path) -> Iterator[Processes]:
    """Commands on the default database; they have ended before its tables are emptied."""
    processes = Processes(tmp_path, {"default": database_settings()})
    yield processes
    processes.end_all()


@pytest.fixture
def marks(processes: Processes) -> Marks:
    return processes.marks
