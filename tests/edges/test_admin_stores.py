"""Which database, which time zone, which admin site; and several people at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.db import connection, connections

import django_jobqueue
from django_jobqueue.admin import register
from django_jobqueue.models import BatchMember, FailedJob, Job
from tests.edges.commands import dead_letter, dead_letter_values
from tests.edges.pages import JOBS, LIST, OPERATE, job_page, page, person, rows, text, told, waiting_job
from tests.edges.pages import _fresh_choices as _fresh_choices
from tests.helpers.aliases import database_alias
from tests.helpers.threads import in_threads

PEOPLE = 4


@pytest.fixture
def queue_alias(db: None, settings: Any, tmp_path: Path) -> Iterator[str]:
    """A database of its own for the queue; sessions, users and the log stay where they are."""
    if connection.vendor != "sqlite":
        pytest.skip("a second database is made of a file")
    with database_alias("queue", NAME=str(tmp_path / "queue.sqlite3")) as alias:
        with alias.schema_editor() as editor:
            for model in (FailedJob, Job, BatchMember):
                editor.create_model(model)
        settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": "queue"}}}
        yield "queue"


def test_rows_are_on_the_queues_database_and_the_log_on_the_default_one(queue_alias: str) -> None:
    dead_letter("shop.of_the_default_database")
    there = [
        FailedJob.objects.using(queue_alias).create(pk=pk, **dead_letter_values("edges.succeed")) for pk in (71, 72, 73)
    ]
    client = person(*OPERATE)
    assert rows(client.get(LIST)) == [73, 72, 71]
    assert rows(client.get(f"{LIST}?q=succeed&queue=default&when=day")) == [73, 72, 71]
    assert rows(client.get(LIST, {"q": str(there[0].job_id)[-13:]})) == [71]
    assert "edges.succeed" in text(client.get(page(there[0])))
    assert told(client.post(page(there[0], "retry"), follow=True))[0].startswith("The failed job #71 (edges.succeed)")
    client.post(page(there[1], "forget"))
    client.post(LIST, {"action": "retry_selected", "_selected_action": [73]})
    assert not FailedJob.objects.using(queue_alias).exists()
    jobs = Job.objects.using(queue_alias)
    assert set(jobs.values_list("pk", flat=True)) == {there[0].job_id, there[2].job_id}
    assert text(client.get(JOBS)).count("edges.succeed") >= 2
    assert "edges.succeed" in text(client.get(job_page(jobs[0])))
    assert FailedJob.objects.using("default").count() == 1
    assert not Job.objects.using("default").exists()
    assert set(LogEntry.objects.using("default").values_list("object_id", flat=True)) == {"71", "72", "73"}


@pytest.mark.django_db
def test_a_queue_in_memory_has_empty_pages(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    client = person(*OPERATE)
    assert rows(client.get(LIST)) == []
    text(client.get(JOBS))


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.django_db
def test_moments_are_local_whatever_use_tz_says(settings: Any, use_tz: bool) -> None:
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Kolkata"
    moment = datetime(2026, 7, 1, 10, 4, tzinfo=UTC)
    letter, job = dead_letter(failed_at=moment, created_at=moment), waiting_job(available_at=moment)
    client = person(*OPERATE)
    for where in (LIST, JOBS, page(letter), job_page(job), f"{LIST}?when=older"):
        shown = text(client.get(where))
        assert "July 1, 2026, 3:34 p.m. IST" in shown, where
        assert '<time datetime="2026-07-01T10:04:00+00:00"' in shown, where


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("by_action", [True, False])
def test_people_who_retry_at_once_make_one_job(by_action: bool) -> None:
    letter = dead_letter()
    clients = [person(*OPERATE) for _number in range(PEOPLE)]
    data = {"action": "retry_selected", "_selected_action": [letter.pk]} if by_action else {}
    where = LIST if by_action else page(letter, "retry")
    for client in clients:
        text(client.get(LIST))
    answers = in_threads(PEOPLE, lambda number: clients[number].post(where, data).status_code)
    assert answers == [302] * PEOPLE
    assert Job.objects.count() == 1
    assert not FailedJob.objects.exists()
    heard = [message for client in clients for message in told(client.get(LIST))]
    retried = [message for message in heard if "was retried" in message or message.startswith("Retried 1")]
    assert len(heard) == PEOPLE
    assert len(retried) == 1
    assert all("gone" in message for message in heard if message not in retried)
    assert LogEntry.objects.count() == 1
    connections.close_all()


def test_another_site_registers_them_once() -> None:
    site = AdminSite(name="operations")
    register(site)
    register(site)
    assert site.is_registered(FailedJob)
    assert site.is_registered(Job)


def script(apps: str, jobqueue: str, code: str) -> str:
    start = f"""
        import sys
        import django
        from django.conf import settings
        settings.configure(
            INSTALLED_APPS={apps}, JOBQUEUE={jobqueue}, SECRET_KEY="x", USE_TZ=True,
            DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
        )
        django.setup()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code)],
        cwd=Path(django_jobqueue.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WITH_ADMIN = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
REGISTERED = """
    from django.contrib import admin
    print(sorted(model.__name__ for model in admin.site._registry if model._meta.app_label == "django_jobqueue"))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("jobqueue", "found"),
    [
        ("{}", "['FailedJob', 'Job', 'Worker']"),
        ("{'ADMIN': False}", "[]"),
        ("{'TYPO': 1}", "['FailedJob', 'Job', 'Worker']"),
    ],
)
def test_the_setting_decides_about_the_default_site(jobqueue: str, found: str) -> None:
    assert script(str([*WITH_ADMIN, "django_jobqueue"]), jobqueue, REGISTERED) == found


@pytest.mark.process
def test_a_project_can_do_without_the_admin() -> None:
    code = """
        from django.core.management import call_command
        call_command("migrate", verbosity=0)
        from django_jobqueue import dispatch
        print("django_jobqueue.admin" in sys.modules, "django.contrib.admin" in sys.modules)
    """
    assert script("['django_jobqueue']", "{}", code) == "False False"
