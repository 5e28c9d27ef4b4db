"""Admin pages of a project that has a queue on Redis: numbers and the first jobs; dead letters as everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.exceptions import ConnectionError, TimeoutError

from django_jobqueue.drivers import connections
from django_jobqueue.jobs.records import Fail, ReserveLimit
from django_jobqueue.models import FailedJob
from lab.servers import Redis
from tests.drivers.contract import attempt, new
from tests.edges.commands import run, succeed
from tests.edges.pages import JOBS, LIST, NASTY, OPERATE, VIEW, page, person, text
from tests.edges.pages import _fresh_choices as _fresh_choices
from tests.helpers.redis import entry, wipe
from tests.helpers.servers import private_redis, running

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def fast(settings: Any) -> Iterator[Any]:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "fast": entry()}}
    yield connections["fast"]
    wipe(connections["fast"])


def bury(driver: Any, name: str) -> FailedJob:
    driver.push([new(name)])
    (held,) = driver.reserve("default", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=90).jobs
    driver.settle([Fail(held, attempt())])
    return FailedJob.objects.get(job_id=held.id)


def test_the_list_of_jobs_has_the_numbers_and_the_first_jobs_of_other_stores(fast: Any) -> None:
    first = new("shop.jobs.first", queue="mail", rank=-1)
    fast.push([first, *(new("shop.jobs.other", queue="mail") for _ in range(9)), new(queue="late", delay=60)])
    shown = text(person(*VIEW).get(JOBS))
    assert "Connection “fast” (Redis)" in shown
    assert f'title="shop.jobs.first {first.id}"' in shown
    assert shown.count("jobs.other</span>") == 4
    assert all(f'<th scope="row">{name}</th>' in shown for name in ("mail", "late"))
    assert "<td>10</td>" in shown


def test_what_a_queue_holds_is_escaped(fast: Any) -> None:
    fast.push([new(NASTY, queue=NASTY)])
    assert "<script>alert(1)" not in text(person(*VIEW).get(JOBS))


def test_a_store_out_of_reach_breaks_no_page(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*given: Any, **more: Any) -> Any:
        raise ConnectionError("Connection refused")

    monkeypatch.setattr(fast, "sizes", gone)
    assert "It is not reachable: Connection refused" in text(person(*VIEW).get(JOBS))
    assert person(*VIEW).get(LIST).status_code == 200


def test_a_failed_job_is_retried_into_its_store(fast: Any) -> None:
    letter = bury(fast, succeed.definition.name)
    client = person(*OPERATE)
    shown = text(client.post(page(letter, "retry"), follow=True))
    assert "was retried" in shown
    assert "See the job" not in shown
    assert [job.id for job in fast.peek("default", limit=5)] == [letter.job_id]
    assert not FailedJob.objects.exists()


@pytest.fixture
def server(settings: Any) -> Iterator[Redis]:
    """Of a connection "fast" that has a dead letter, and may be filled, or stopped."""
    with running(private_redis()) as server:
        settings.CACHES = {**settings.CACHES, "private": {**settings.CACHES["redis"], **server.settings()}}
        options = entry(CACHE="private")
        settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, "fast": options}}
        bury(connections["fast"], succeed.definition.name)
        yield server
        connections["fast"].close()


def fill(server: Redis) -> None:
    server.execute("CONFIG SET maxmemory 1")


@pytest.mark.parametrize("what", [fill, Redis.stop], ids=["full", "stopped"])
def test_a_retry_that_its_store_does_not_take_is_told_and_leaves_the_failed_job(server: Redis, what: Any) -> None:
    letter = FailedJob.objects.get()
    client = person(*OPERATE)
    what(server)
    assert "its store refuses, or is out of reach" in text(client.post(page(letter, "retry"), follow=True))
    chosen = {"action": "retry_selected", "_selected_action": [letter.pk]}
    assert "its store refuses, or is out of reach" in text(client.post(LIST, chosen, follow=True))
    ran = run("queue_retry", "all", no_input=True)
    assert (ran.code, "maxmemory" in ran.error or "not reachable" in ran.error) == (1, True)
    assert FailedJob.objects.get() == letter


def test_of_a_selection_only_the_first_is_waited_for(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent takes its timeout for each call."""
    driver = connections["fast"]
    bury(driver, succeed.definition.name)
    asked = []

    def silent(*given: Any, **more: Any) -> Any:
        asked.append(given)
        raise TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(driver, "retry", silent)
    first, second = FailedJob.objects.order_by("pk").values_list("pk", flat=True)
    chosen = {"action": "retry_selected", "_selected_action": [first, second]}
    shown = text(person(*OPERATE).post(LIST, chosen, follow=True))
    assert f"#{first}, #{second}: nothing was done, since its store refuses, or is out of reach" in shown
    assert len(asked) == 1


def test_what_is_in_the_database_is_seen_while_its_store_is_out_of_reach(server: Redis) -> None:
    letter = FailedJob.objects.get()
    server.stop()
    assert [record["number"] for record in run("queue_failed", json=True).records] == [letter.pk]
    for args in (["queue_restart"], ["queue_stats", "--workers"], ["queue_stats", "--since", "1h"]):
        assert run(*args).code == 0
    for args in (["queue_stats"], ["queue_prune"], ["queue_retry", str(letter.pk)]):
        ran = run(*args)
        assert (ran.code, "'fast' is not reachable" in ran.error) == (1, True)
    assert run("queue_stats", connection="default").code == 0
    assert run("queue_forget", str(letter.pk)).code == 0
    assert not FailedJob.objects.exists()


def test_a_move_to_a_full_store_is_one_line_and_loses_nothing(server: Redis) -> None:
    source = connections["default"]
    source.push([new(queue="mail")])
    fill(server)
    ran = run("queue_move", "mail", "--from", "default", "--to", "fast")
    assert (ran.code, "refuses: command not allowed when used memory" in ran.error) == (1, True)
    assert source.sizes()["mail"].waiting == 1


def test_commands_reach_its_queues_and_dead_letters(fast: Any) -> None:
    letter = bury(fast, succeed.definition.name)
    fast.push([new(queue="mail", delay=60), new(queue="mail")])
    (mail,) = [each for each in run("queue_stats", json=True).records if each["queue"] == "mail"]
    assert (mail["connection"], mail["ready"], mail["scheduled"]) == ("fast", 1, 1)
    (failed,) = run("queue_failed", json=True).records
    assert failed["connection"] == "fast"
    assert run("queue_retry", str(letter.pk)).code == 0
    assert fast.peek("default", limit=5)[0].id == letter.job_id
    letter = bury(fast, succeed.definition.name)
    assert run("queue_forget", str(letter.job_id)).code == 0
    assert not FailedJob.objects.exists()
