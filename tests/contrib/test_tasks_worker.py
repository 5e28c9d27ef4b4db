"""``manage.py queue_work`` runs tasks that it was told nothing of but TASKS and the installed apps."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contrib.conftest import BACKEND
from tests.contrib.names import Status, tasks
from tests.edges.commands import run
from tests.helpers.processes import Processes


@pytest.mark.process
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


@pytest.mark.django_db(transaction=True)
def test_the_banner_of_a_worker_names_the_backends_whose_tasks_it_runs(use: Any, settings: Any) -> None:
    use()
    settings.TASKS = {
        **settings.TASKS,
        "tests": {"BACKEND": BACKEND.replace("JobQueue", "Dummy")},
        "broken": {"BACKEND": "nowhere.Backend"},
    }
    pool = run("queue_work", stop_when_empty=True, terminal=True, no_color=True).lines[3]
    assert re.fullmatch(
        r"  pool     1 thread   max_attempts 3   \d+ jobs? in \d+ modules?   tasks of default, mail", pool
    )
    started = run("queue_work", stop_when_empty=True, json=True).records[0]
    assert (started["event"], started["tasks"]) == ("pool_started", ["default", "mail"])


@pytest.mark.django_db(transaction=True)
def test_the_banner_names_no_backend_where_no_task_becomes_a_job(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND.replace("JobQueue", "Immediate")}}
    assert "tasks of" not in run("queue_work", stop_when_empty=True, terminal=True, no_color=True).lines[3]
    assert run("queue_work", stop_when_empty=True, json=True).records[0]["tasks"] == []
