"""``queue_stats``: how much is in each queue."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue import using
from django_jobqueue.models import Job, QueueStat, StoreNow, Worker
from tests.edges.commands import dead_letter, run

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = 1_000_000
HEADER = "queue\tconnection\tready\toldest\tscheduled\treserved\tfailed"


@pytest.fixture
def some_jobs() -> None:
    using("edges.succeed").dispatch()
    using("edges.succeed").dispatch()
    using("edges.succeed", delay=60).dispatch()
    using("edges.succeed", queue="mail", delay=60).dispatch()
    reserved = using("edges.succeed", queue="mail").dispatch()
    Job.objects.filter(id=reserved.id).update(state="reserved")
    dead_letter(queue="old")


@pytest.mark.usefixtures("some_jobs")
def test_in_a_pipe_it_is_tab_separated_with_a_header() -> None:
    header, default, mail, old = run("queue_stats").lines
    assert header == HEADER
    assert default.startswith("default\tdefault\t2\t0.")
    assert default.endswith("\t1\t0\t0")
    assert mail == "mail\tdefault\t0\t\t1\t1\t0"
    assert old == "old\tdefault\t0\t\t0\t0\t1"


@pytest.mark.usefixtures("some_jobs")
def test_for_programs_it_has_an_object_for_each_queue() -> None:
    default, mail, old = run("queue_stats", json=True).records
    assert 0 <= default.pop("oldest") < 60
    assert default == {
        "queue": "default",
        "connection": "default",
        "ready": 2,
        "scheduled": 1,
        "reserved": 0,
        "failed": 0,
    }
    assert (mail["oldest"], mail["reserved"], old["failed"]) == (None, 1, 1)


@pytest.mark.usefixtures("some_jobs")
def test_on_a_terminal_it_is_a_table() -> None:
    lines = run("queue_stats", terminal=True, no_color=True).lines
    assert lines[0].split() == ["QUEUE", "CONNECTION", "READY", "OLDEST", "SCHEDULED", "RESERVED", "FAILED"]
    assert lines[2].split() == ["mail", "default", "0", "-", "1", "1", "0"]
    assert len({len(line) for line in lines}) == 1, "numbers are aligned to the right"


@pytest.mark.usefixtures("some_jobs")
def test_it_shows_the_queues_that_are_named_also_empty_ones() -> None:
    shown = run("queue_stats", "--json", "--queue", "mail,empty", "-q", "old").records
    assert [record["queue"] for record in shown] == ["mail", "empty", "old"]
    assert len(run("queue_stats", "--json", "--queue", "*").records) == 3


def test_without_jobs_it_says_so() -> None:
    assert run("queue_stats", terminal=True).out == "No jobs.\n"
    assert run("queue_stats").lines == [HEADER]
    assert run("queue_stats", json=True).out == ""


@pytest.mark.parametrize("queue", ["a,,b", "*,a", " "])
def test_what_is_no_queue_is_a_usage_error(queue: str) -> None:
    assert run("queue_stats", "--queue", queue).code == 2


# Workers


def a_worker(silent_for: float = 0, **changes: Any) -> Worker:
    values = {
        "id": uuid4(),
        "name": "web-1",
        "host": "web-1",
        "pid": 4711,
        "queues": "high,default",
        "workers": 4,
        "version": "0.1.0",
        "processed": 1200,
        "memory": 50 * 1024 * 1024,
        "started_at": StoreNow(-3_600_000_000),
        "heartbeat_at": StoreNow(-round(silent_for * SECOND)),
    }
    return Worker.objects.create(**{**values, **changes})


def test_workers_are_shown_by_the_age_of_their_heartbeat() -> None:
    a_worker()
    a_worker(silent_for=40, name="web-2")
    a_worker(silent_for=600, name="web-3", queues="*")
    header, *rows = (line.split("\t") for line in run("queue_stats", "--workers").lines)
    shown = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["name"], row["state"], row["queues"]) for row in shown] == [
        ("web-1", "alive", "high,default"),
        ("web-2", "late", "high,default"),
        ("web-3", "lost", "*"),
    ]


def test_for_programs_there_is_an_object_for_each_worker() -> None:
    worker = a_worker()
    (shown,) = run("queue_stats", "--workers", "--json").records
    assert (shown["id"], shown["pid"], shown["queues"]) == (str(worker.id), 4711, ["high", "default"])
    assert (shown["processed"], shown["failed"], shown["is_embedded"]) == (1200, 0, False)
    assert shown["heartbeat_at"].endswith("Z")


def test_on_a_terminal_workers_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    a_worker(name="web\x1b[31m", silent_for=600)
    title, row = run("queue_stats", "--workers", terminal=True, no_color=True).lines
    assert title.split()[:3] == ["NAME", "PID", "STATE"]
    assert "\x1b" not in row
    assert row.split()[1:12] == ["4711", "lost", "10", "min", "ago", "high,default", "4", "1,200", "0", "0", "0"]
    assert "50 MB" in row


def test_without_workers_it_says_so() -> None:
    assert run("queue_stats", "--workers", terminal=True).out == "No workers.\n"
    assert run("queue_stats", "--workers", "--json").out == ""


def test_two_connections_on_one_database_show_a_worker_once(settings: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "again": {"DRIVER": "database"}}}
    a_worker()
    assert len(run("queue_stats", "--workers", "--json").records) == 1


# What was done


def a_minute(minutes: int = 0, **changes: Any) -> QueueStat:
    values = {
        "minute": StoreNow(-minutes * 60 * SECOND),
        "connection": "default",
        "queue": "mail",
        "name": "shop.jobs.send",
        "processed": 3,
        "released": 1,
        "elapsed_sum": 2 * SECOND,
        "elapsed_max": SECOND,
        "waited_sum": 8 * SECOND,
        "waited_max": 5 * SECOND,
    }
    return QueueStat.objects.create(**{**values, **changes})


def test_what_was_done_is_told_by_queue_and_job() -> None:
    a_minute(minutes=1)
    a_minute(minutes=2, failed=2, lost=2, elapsed_max=2 * SECOND)
    a_minute(minutes=90)
    a_minute(queue="other", connection="fast")
    first, second = run("queue_stats", "--since", "1h", "--json").records
    since = datetime.fromisoformat(first.pop("since"))
    assert timedelta(hours=1) <= datetime.now(UTC) - since < timedelta(hours=1, minutes=2)
    assert since.second == since.microsecond == 0
    assert first == {
        "queue": "mail",
        "name": "shop.jobs.send",
        "connection": "default",
        "processed": 6,
        "released": 2,
        "failed": 2,
        "lost": 2,
        "elapsed_mean": 0.333333,
        "elapsed_max": 2.0,
        "waited_mean": 1.333333,
        "waited_max": 5.0,
    }
    assert (second["queue"], second["connection"], second["processed"]) == ("other", "fast", 3)
    (only,) = run("queue_stats", "--since", "2h", "--queue", "mail", "--connection", "default", "--json").records
    assert only["processed"] == 9


def test_on_a_terminal_what_was_done_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    a_minute(name="shop\x1b[31m")
    ran = run("queue_stats", "--since", "600", terminal=True, no_color=True)
    title, row = ran.lines
    assert title.split()[-4:] == ["RAN", "LONGEST", "WAITED", "LONGEST"]
    assert "\x1b" not in row
    assert row.split()[2:] == ["default", "3", "1", "0", "0", "500", "ms", "1", "s", "2", "s", "5", "s"]
    assert re.fullmatch(r"Since \d{4}-\d\d-\d\d \d\d:\d\d UTC\.\n", ran.err)
    header, line = run("queue_stats", "--since", "600").lines
    assert dict(zip(header.split("\t"), line.split("\t"), strict=True))["elapsed_mean"] == "0.5"


def test_beyond_a_day_it_tells_from_a_full_hour_on_and_says_which() -> None:
    a_minute(minutes=36 * 60)
    told = run("queue_stats", "--since", "37h", "--json").records
    run("queue_prune", "--stats", "30d")
    assert QueueStat.objects.get().seconds == 3600
    assert run("queue_stats", "--since", "37h", "--json").records == told
    assert [(one["processed"], one["since"][13:]) for one in told] == [(3, ":00:00.000Z")]


def test_when_nothing_was_done_it_says_so() -> None:
    assert run("queue_stats", "--since", "1h", terminal=True).out == "Nothing was done.\n"
    assert run("queue_stats", "--since", "1h", "--json").out == ""


@pytest.mark.parametrize("options", [{"since": "soon"}, {"since": "0"}, {"since": "1h", "workers": True}])
def test_what_is_no_time_or_two_questions_is_a_usage_error(options: dict[str, Any]) -> None:
    assert run("queue_stats", **options).code == 2
