"""``queue_prune``, and workers that prune by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.records import Complete, NewBatch, NewResult, Report, ReserveLimit
from django_jobqueue.models import FailedJob, QueueStat, Worker
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker as Loop
from tests.drivers.contract import new
from tests.edges.commands import dead_letter, run
from tests.edges.pages import working
from tests.helpers.redis import REDIS, entry, wipe

pytestmark = pytest.mark.django_db(transaction=True)


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


@pytest.fixture
def some_rows() -> None:
    for days in (1, 40, 50, 60):
        dead_letter(failed_at=ago(days=days))
    working()
    working(heartbeat_at=ago(hours=2))


def left() -> tuple[int, int]:
    return FailedJob.objects.count(), Worker.objects.count()


@pytest.mark.usefixtures("some_rows")
def test_by_the_settings_it_deletes_no_dead_letters() -> None:
    ran = run("queue_prune")
    assert (ran.code, ran.lines[0]) == (0, "what=workers status=deleted count=1")
    assert left() == (4, 1)


@pytest.mark.usefixtures("some_rows")
def test_the_setting_says_how_old(settings: Any) -> None:
    settings.JOBQUEUE = {"PRUNE": {"FAILED": timedelta(days=45), "WORKERS": None}}
    deleted = {record["what"]: record["count"] for record in run("queue_prune", "--json").records}
    assert deleted == {"failed": 2, "stats": 0, "batches": 0, "progress": 0, "results": 0, "minutes": 0}
    assert left() == (2, 2)


@pytest.mark.usefixtures("some_rows")
@pytest.mark.parametrize("age", ["30d", "720h", "43200m", "2592000", "2592000s", 30 * 86_400])
def test_a_flag_says_it_for_its_kind_and_no_other_is_touched(age: object) -> None:
    assert run("queue_prune", failed=age).lines == ["what=failed status=deleted count=3"]
    assert left() == (1, 2)


@pytest.mark.usefixtures("some_rows")
def test_it_deletes_in_small_steps() -> None:
    assert run("queue_prune", "--failed", "30d", "--chunk", "1").lines == ["what=failed status=deleted count=3"]


def minutes_of(hour: datetime) -> None:
    for number in range(3):
        QueueStat.objects.create(minute=hour + timedelta(minutes=number), name="shop.work", processed=1)


def test_counts_of_minutes_that_are_a_day_old_are_rolled_up_to_hours() -> None:
    hour = ago(days=2).replace(minute=0, second=0, microsecond=0)
    minutes_of(hour)
    assert run("queue_prune", "--chunk", "2").lines[-1] == "what=minutes status=rolled_up count=3"
    assert list(QueueStat.objects.values_list("minute", "seconds", "processed")) == [(hour, 3600, 3)]


def test_counts_are_rolled_up_with_a_flag_that_concerns_them_and_with_no_other_nor_in_a_dry_run() -> None:
    minutes_of(ago(days=2).replace(minute=0, second=0, microsecond=0))
    run("queue_prune", "--workers", "1h")
    run("queue_prune", "--dry-run")
    assert QueueStat.objects.count() == 3
    assert run("queue_prune", "--stats", "3d", terminal=True).out.splitlines() == [
        "stats: 0 rows deleted.",
        "minutes: 3 rows rolled up.",
    ]
    assert QueueStat.objects.count() == 1


@pytest.mark.usefixtures("some_rows")
def test_it_can_be_asked_what_it_would_do() -> None:
    ran = run("queue_prune", "--failed", "30d", "--workers", "1h", "--dry-run")
    assert ran.lines == [
        "what=failed status=would_be_deleted count=3",
        "what=workers status=would_be_deleted count=1",
    ]
    assert left() == (4, 2)


@pytest.mark.usefixtures("some_rows")
def test_on_a_terminal_it_says_it_in_words() -> None:
    assert run("queue_prune", "--workers", "1h", terminal=True).out == "workers: 1 row deleted.\n"


@pytest.mark.parametrize("age", ["0", "soon", "-1d", "d", "1w", "nand", ""])
def test_what_is_no_age_is_a_usage_error(age: str) -> None:
    ran = run("queue_prune", f"--failed={age}")
    assert ran.code == 2
    assert "--failed" in ran.error


# What each connection keeps


@pytest.fixture(params=["database", REDIS])
def store(request: pytest.FixtureRequest, settings: Any) -> Iterator[Driver]:
    """A connection beside the default, so that a test shows that every connection is pruned."""
    options = entry() if request.param == "redis" else {"DRIVER": "database"}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "other": options}}
    yield connections["other"]
    if request.param == "redis":
        wipe(connections["other"])


def a_batch(store: Driver, finished_at: datetime) -> UUID:
    batch = NewBatch(id=uuid4(), name="", metadata="", allow_failures=False, callbacks="")
    store.create_batch(batch, [], now=finished_at)
    assert store.close_batch(batch.id, now=finished_at) is not None
    return batch.id


def a_report(store: Driver, updated_at: datetime) -> UUID:
    report = Report(uuid4(), None, 40, "pushing")
    store.progress.write([report], now=updated_at)
    return report.id


def a_result(store: Driver, finished_at: datetime, keep_for: float) -> UUID:
    job = new()
    store.push([job], now=finished_at)
    limit = ReserveLimit(rows=1, max_attempts=3)
    (held,) = store.reserve("default", "w1", limit, retry_after=90, now=finished_at).jobs
    result = NewResult(value="7", error="", started_at=finished_at, finished_at=finished_at, keep_for=keep_for)
    store.settle([Complete(held, result=result)], now=finished_at)
    return job.id


def test_what_a_connection_keeps_is_deleted_when_it_is_old(store: Driver) -> None:
    old_batch, batch = a_batch(store, ago(days=8)), a_batch(store, ago(days=6))
    old_report, report = a_report(store, ago(hours=25)), a_report(store, ago(hours=23))
    expired, result = a_result(store, ago(hours=3), 3600), a_result(store, ago(hours=3), 86_400)
    ran = run("queue_prune", "--json")
    deleted = {record["what"]: record["count"] for record in ran.records}
    kinds = {"workers": 0, "stats": 0, "batches": 1, "progress": 1, "results": 1, "minutes": 0}
    assert (ran.code, deleted) == (0, kinds)
    assert (store.get_batch(old_batch), store.get_batch(batch) is None) == (None, False)
    assert (store.progress.get(old_report), store.progress.get(report) is None) == (None, False)
    assert store.get_result(expired, now=ago(hours=2.5)) is None
    assert store.get_result(result) is not None


def test_a_flag_deletes_only_its_kind_of_what_a_connection_keeps(store: Driver) -> None:
    batches = [a_batch(store, ago(days=days)) for days in (3, 1)]
    report = a_report(store, ago(days=3))
    assert run("queue_prune", "--batches", "2d").lines == ["what=batches status=deleted count=1"]
    assert [store.get_batch(batch) is None for batch in batches] == [True, False]
    assert store.progress.get(report) is not None
    assert run("queue_prune", "--progress", "2d").lines == ["what=progress status=deleted count=1"]
    assert store.progress.get(report) is None


def test_a_worker_deletes_by_the_settings_what_its_connections_keep(store: Driver, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "PRUNE": {"BATCHES": timedelta(days=2), "PROGRESS": None}}
    batches = [a_batch(store, ago(days=days)) for days in (3, 1)]
    report = a_report(store, ago(days=3))
    Loop(WorkerOptions.from_settings(stop_when_empty=True), drivers=[store]).run()
    assert [store.get_batch(batch) is None for batch in batches] == [True, False]
    assert store.progress.get(report) is not None


@pytest.mark.parametrize("what", ["batches", "progress"])
def test_what_cannot_be_counted_is_refused_with_a_dry_run(what: str) -> None:
    ran = run("queue_prune", "--dry-run", f"--{what}=1d")
    assert ran.code == 2
    assert what in ran.error
