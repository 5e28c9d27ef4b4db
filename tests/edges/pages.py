"""The admin's pages as people see them: who they are, what they ask for, what they are told."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_jobqueue.admin import choices
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import AttemptHistory, AttemptRecord
from django_jobqueue.models import FailedJob, Job, Worker

LIST = "/admin/django_jobqueue/failedjob/"
JOBS = "/admin/django_jobqueue/job/"
WORKERS = "/admin/django_jobqueue/worker/"
VIEW = ("view_job", "view_failedjob", "view_worker")
OPERATE = (*VIEW, "view_payload_job", "retry_failedjob", "delete_failedjob")
MOST_QUERIES = 8

#: What must not get out of a row as it is.
NASTY = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


@pytest.fixture(autouse=True)
def _fresh_choices() -> Iterator[None]:
    choices.forget()
    yield
    choices.forget()


def person(*permissions: str) -> Client:
    """A browser in which somebody with exactly these permissions is logged in."""
    user = User.objects.create_user(f"person-{new_job_id()}", is_staff=True)
    found = Permission.objects.filter(content_type__app_label="django_jobqueue", codename__in=permissions)
    assert found.count() == len(set(permissions))
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


def page(letter: FailedJob, act: str = "change") -> str:
    return f"{LIST}{letter.pk}/{act}/"


def job_page(job: Job) -> str:
    return f"{JOBS}{job.pk}/change/"


def text(response: Any) -> str:
    assert response.status_code == 200
    return str(response.content.decode())


def rows(response: Any) -> list[int]:
    """The numbers on a list of failed jobs, in the order of the page."""
    return [letter.pk for letter in response.context["cl"].result_list]


def told(response: Any) -> list[str]:
    """The messages of a page, without markup."""
    found = re.search(r'<ul class="messagelist">(.*?)</ul>', text(response), re.DOTALL)
    if found is None:
        return []
    items = re.findall(r"<li[^>]*>(.*?)</li>", found[1], re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", item)).strip() for item in items]


def waiting_job(name: str = "edges.succeed", **changes: Any) -> Job:
    now = datetime.now(UTC)
    values = {
        "id": new_job_id(),
        "queue": "default",
        "name": name,
        "payload": '{"args":[],"kwargs":{}}',
        "format": 1,
        "rank": 0,
        "state": "ready",
        "ready_at": now,
        "available_at": now,
        "created_at": now,
    }
    return Job.objects.create(**{**values, **changes})


def working(*, using: str = "default", **changes: Any) -> Worker:
    now = datetime.now(UTC)
    values = {
        "id": uuid4(),
        "name": "web-1",
        "host": "web-1",
        "pid": 4711,
        "queues": "high,default",
        "workers": 4,
        "version": "0.1.0",
        "started_at": now,
        "heartbeat_at": now,
    }
    return Worker.objects.using(using).create(**{**values, **changes})


def history(*, count: int = 3, **changes: Any) -> str:
    """The stored text of failed attempts."""
    found = AttemptHistory()
    for number in range(1, count + 1):
        values = {
            "number": number,
            "worker": "web1:48213:ab",
            "started": "2026-07-01T12:00:00+00:00",
            "waited": 0.1,
            "ran": 30.0,
            "exception_class": "requests.exceptions.Timeout",
            "message": "api.example timed out",
            "traceback": f"Traceback (most recent call last):\nTimeout: number {number}",
        }
        found = found.plus(AttemptRecord(**{**values, **changes}))
    return found.write()
