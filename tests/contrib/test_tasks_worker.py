"""``manage.py queue_work`` runs tasks that it was told nothing of but TASKS and the installed apps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contrib.names import Status, tasks
from tests.helpers.processes import Processes

pytestmark = pytest.mark.process


def test_a_worker_of_another_process_runs_tasks(processes: Processes, use: Any, settings: Any) -> None:
    board = use()
    processes.settings |= {
        "TASKS": settings.TASKS,
        "INSTALLED_APPS": [*settings.INSTALLED_APPS, "tests.contrib"],
    }
    sums = [board.add.enqueue(number, 1) for number in range(3)]
    later, failing = board.add_later.enqueue(2, 3), board.look.using(queue_name="mail").enqueue(fail_before=2)
    assert processes.worker("--stop-when-empty").wait() == 0
    found = [tasks.default_task_backend.get_result(result.id) for result in (*sums, later, failing)]
    assert [result.status for result in found] == [Status.SUCCESSFUL] * 5
    assert [result.return_value for result in found] == [1, 2, 3, 5, 2]
    assert [result.attempts for result in found] == [1, 1, 1, 1, 2]
