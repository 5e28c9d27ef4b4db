"""Django's tasks under one set of names; importing this skips the tests of a module where there are none."""

from __future__ import annotations

import importlib

import django
import pytest

pytest.importorskip("django.tasks" if django.VERSION >= (6, 0) else "django_tasks")

from django_jobqueue.contrib.tasks import JobQueueBackend, compat, running  # after the skip

tasks = importlib.import_module("django.tasks" if django.VERSION >= (6, 0) else "django_tasks")
exceptions = importlib.import_module(f"{tasks.__name__}.exceptions")

task = tasks.task
Status = compat.TaskResultStatus
InvalidTask = compat.InvalidTask
InvalidTaskBackend = compat.InvalidTaskBackend
DoesNotExist = compat.TaskResultDoesNotExist
Mismatch = exceptions.TaskResultMismatch

CARRIES_OPTIONS = django.VERSION < (6, 0) or django.VERSION >= (6, 1)  # @task(max_attempts=…)

__all__ = [
    "CARRIES_OPTIONS",
    "DoesNotExist",
    "InvalidTask",
    "InvalidTaskBackend",
    "JobQueueBackend",
    "Mismatch",
    "Status",
    "compat",
    "running",
    "task",
    "tasks",
]
