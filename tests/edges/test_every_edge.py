"""Every command and every page of the admin, where all jobs are on one connection, and reads go to a replica.

Each store is tried with its rows in the default database, and in one that the routers know nothing of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_jobqueue import PREVIOUS, JobContext, batch, chain, get_batch, get_job, progress_token
from django_jobqueue.drivers import connections
from django_jobqueue.models import (
    Batch,
    BatchMember,
    FailedJob,
    Job,
    Progress,
    QueueStat,
    Result,
    Worker,
    WorkerRequest,
)
from tests.drivers.contract import DATABASE
from tests.edges.commands import fail, run, succeed
from tests.edges.pages import JOBS, LIST, OPERATE, VIEW, WORKERS, page, person, rows, text, told, working
from tests.edges.pages import _fresh_choices as _fresh_choices
from tests.helpers.databases import replica as replica
from tests.helpers.databases import second_database as second_database
from tests.helpers.redis import REDIS, entry, wipe

pytestmark = pytest.mark.django_db(transaction=True)

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
TABLES = (Job, FailedJob, Batch, BatchMember, Result, Progress, QueueStat, Worker, WorkerRequest)


@pytest.fixture(params=[DATABASE, REDIS])
def entry_of_store(request: pytest.FixtureRequest) -> dict[str, Any]:
    return entry() if request.param == "redis" else {"DRIVER": request.param}


@pytest.fixture(params=["default", "queue"])
def rows_in(request: pytest.FixtureRequest, entry_of_store: dict[str, Any], settings: Any) -> Iterator[str]:
    """Where the rows of the only connection are."""
    alias = "default" if request.param == "default" else request.getfixturevalue("second_database")
    request.getfixturevalue("replica")
    settings.JOBQUEUE = {
        "CONNECTIONS": {"default": {**entry_of_store, "DATABASE": alias}},
        "KEEP_RESULTS": 600,
        "BACKOFF": 0,
    }
    yield alias
    if entry_of_store["DRIVER"] == "redis":
        wipe(connections["default"])
    if alias != "default":
        assert not any(table.objects.using("default").exists() for table in TABLES), "all rows are where they belong"


def work() -> None:
    """Run what is due, by the command."""
    assert run("queue_work", "--stop-when-empty", "--sleep", "0.05", "-v0").code == 0


def letters_in(alias: str) -> list[FailedJob]:
    return list(FailedJob.objects.using(alias).order_by("id"))


def test_every_command_works(rows_in: str) -> None:
    """F69, F70"""
    succeed.dispatch()
    late = succeed.using(delay=3600, queue="mail").dispatch()
    bad = [fail.dispatch("first"), fail.dispatch("second"), fail.dispatch("third")]
    ready = {record["queue"]: (record["ready"], record["scheduled"]) for record in run("queue_stats", "--json").records}
    assert ready == {"default": (4, 0), "mail": (0, 1)}
    work()

    found = run("queue_failed", "--json").records
    assert {record["id"] for record in found} == {str(dispatched.id) for dispatched in bad}
    numbers = [str(letter.pk) for letter in letters_in(rows_in)]
    assert len(run("queue_failed", "--queue", "default", "--limit", "2", "--json").records) == 2
    (stats,) = run("queue_stats", "--since", "1h", "--json").records[:1]
    assert stats["connection"] == "default"
    assert run("queue_retry", numbers[0]).code == 0
    assert run("queue_retry", "all", "--no-input").code == 0
    assert letters_in(rows_in) == []
    work()
    again = letters_in(rows_in)
    assert len(again) == 3
    assert run("queue_forget", str(again[0].job_id)).code == 0
    assert run("queue_forget", "all", "--no-input").code == 0
    assert letters_in(rows_in) == []

    fail.dispatch("old")
    work()
    assert run("queue_prune", "--failed", "1d", "--dry-run").code == 0
    assert run("queue_prune", "--failed", "1d").code == 0
    assert len(letters_in(rows_in)) == 1
    FailedJob.objects.using(rows_in).update(failed_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert run("queue_prune", "--failed", "1d").code == 0
    assert letters_in(rows_in) == []
    working(using=rows_in)
    assert "web-1" in {record["name"] for record in run("queue_stats", "--workers", "--json").records}
    assert run("queue_restart", "--json").records[0]["status"] == "asked"
    assert WorkerRequest.objects.using(rows_in).exists()
    record = get_job(late.id)
    assert record is not None
    assert record.cancel()
    assert run("queue_stats", "--json", "--queue", "mail").records[0]["scheduled"] == 0


def test_chains_batches_progress_and_results_work(rows_in: str, register: Register) -> None:
    """F69, F70"""

    @register(name="tests.measure", takes_context=True)
    def measure(context: JobContext, what: Any = 0) -> Any:
        context.progress(40, "measuring")
        return {"what": what}

    single = measure.dispatch(7)
    steps = chain(measure.s(1), batch([measure.s(2), measure.s(3)]), measure.s(PREVIOUS)).dispatch()
    members = batch([measure.s(4), fail.s("always"), chain(measure.s(5), measure.s(PREVIOUS))])
    dispatched = members.then(succeed.s()).catch(measure.s(PREVIOUS)).finally_(succeed.s()).dispatch()
    cancelled = get_batch(batch([succeed.using(delay=3600).s() for _ in range(3)]).dispatch().id)
    assert cancelled is not None
    assert cancelled.cancel() == 3
    work()

    record = get_job(single.id)
    assert record is not None
    assert record.result == {"what": 7}
    assert record.progress is not None
    assert record.wait(5).result == {"what": 7}
    found = get_batch(dispatched.id)
    assert found is not None
    assert (found.total, found.done, found.failed, found.pending) == (3, 2, 1, 0)
    assert found.finished_at is not None
    for of in (single, steps, dispatched):
        answer = Client().get(reverse("django_jobqueue:progress", args=[progress_token(of)]))
        assert answer.json()["is_over"], of
    assert len(letters_in(rows_in)) == 1
    assert run("queue_prune").code == 0


def test_every_page_and_action_of_the_admin_works(rows_in: str) -> None:
    """F69, F70"""
    succeed.using(delay=3600).dispatch()
    for name in ("button", "forgotten", "first", "second", "third", "fourth"):
        fail.dispatch(name)
    work()
    button, forgotten, first, second, third, fourth = letters = letters_in(rows_in)
    ready = succeed.dispatch()
    worker = working(using=rows_in)
    client = person(*OPERATE)
    for where in (
        "/admin/",
        "/admin/django_jobqueue/",
        JOBS,
        f"{JOBS}?q=succeed",
        WORKERS,
        f"{WORKERS}{worker.pk}/change/",
    ):
        text(client.get(where))
    assert "edges.succeed" in text(client.get(JOBS))
    if connections["default"].supports_transactions:
        assert "edges.succeed" in text(client.get(f"{JOBS}{ready.id}/change/"))
    assert len(rows(client.get(LIST))) == len(letters)
    assert len(rows(client.get(f"{LIST}?q=edges.fail&queue=default&when=day"))) == len(letters)
    assert "it is gone" not in text(client.get(page(button)))
    text(client.get(page(button, "history")))
    text(person(*VIEW).get(page(button)))

    assert "was retried" in told(client.post(page(button, "retry"), follow=True))[0]
    assert client.post(page(forgotten, "forget"), follow=True).status_code == 200
    chosen = {"action": "retry_selected", "_selected_action": [first.pk, second.pk]}
    assert told(client.post(LIST, chosen, follow=True))[0].startswith("Retried 2")
    chosen = {"action": "forget_selected", "_selected_action": [third.pk, fourth.pk]}
    client.post(LIST, chosen | {"post": "yes"}, follow=True)
    assert letters_in(rows_in) == []
    size = connections["default"].sizes()["default"]
    assert (size.ready, size.scheduled) == (4, 1)


def test_a_queue_moves_to_another_connection_of_the_same_store(
    entry_of_store: dict[str, Any], second_database: str, replica: None, settings: Any
) -> None:
    other = entry() if entry_of_store["DRIVER"] == "redis" else {"DRIVER": "database", "DATABASE": second_database}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {**entry_of_store, "DATABASE": "default"}, "other": other}}
    try:
        moving = {succeed.dispatch().id, succeed.using(delay=3600).dispatch().id}
        ran = run("queue_move", "default", "--from", "default", "--to", "other", "--json")
        assert (ran.code, ran.records[0]["moved"]) == (0, 2)
        assert connections["default"].queues() == []
        assert {record.id for record in connections["other"].waiting("default", limit=9)} == moving
        work()
        assert connections["other"].sizes()["default"].waiting == 1
    finally:
        for alias in ("default", "other") if entry_of_store["DRIVER"] == "redis" else ():
            wipe(connections[alias])
