"""Packages of others, made for whatever backend TASKS names, work unchanged."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from django_jobqueue.running.worker import Worker
from tests.contrib.names import Status, tasks


def test_crontask_enqueues_what_it_schedules(board: Any, worker: Worker, settings: Any) -> None:
    crontask = pytest.importorskip("crontask")
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "crontask"]
    heartbeat = importlib.import_module("crontask.tasks").heartbeat
    crontask.scheduler.remove_all_jobs()
    for task in (heartbeat, board.echo):
        crontask.cron("0 6 * * *")(task)
    results = [job.func(*job.args, **job.kwargs) for job in crontask.scheduler.get_jobs()]
    crontask.scheduler.remove_all_jobs()
    while worker.work_once():
        pass
    found = [tasks.default_task_backend.get_result(result.id) for result in results]
    assert [(result.task.name, result.status) for result in found] == [
        ("heartbeat", Status.SUCCESSFUL),
        ("echo", Status.SUCCESSFUL),
    ]
