"""``queue_restart``: whom it asks, whom it cannot, and how it waits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue.management.commands import queue_restart
from django_jobqueue.models import Worker, WorkerRequest
from tests.edges.commands import run
from tests.edges.pages import working

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_is_asked_through_the_store() -> None:
    working()
    ran = run("queue_restart")
    assert (ran.code, ran.out) == (0, "status=asked workers=1\n")
    assert WorkerRequest.objects.get().name == "restart"


def test_it_is_asked_although_nobody_works() -> None:
    """A worker that starts just now may have the old code."""
    assert run("queue_restart", "--json").records == [{"status": "asked", "workers": 0}]
    assert WorkerRequest.objects.exists()


def test_a_worker_that_started_before_ends_and_the_next_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("queue_restart").code == 0
    ran = run("queue_work", "--sleep", "0.05", "--max-time", "60", "--json")
    assert [record["reason"] for record in ran.records if record["event"] == "worker_stopped"] == ["restart"]
    monkeypatch.setattr("django_jobqueue.running.restarting.STARTED", float("inf"))
    ran = run("queue_work", "--sleep", "0.05", "--stop-when-empty", "--json")
    assert [record["reason"] for record in ran.records if record["event"] == "worker_stopped"] == ["empty"]


def test_on_a_terminal_it_says_how_many_and_what_it_cannot_do() -> None:
    working(pid=1)
    working(pid=2, heartbeat_at=datetime.now(UTC) - timedelta(hours=1))
    working(pid=3, is_embedded=True)
    ran = run("queue_restart", terminal=True)
    assert ran.out == "Asked 1 worker process to start afresh.\n"
    assert ran.err == "1 web server with workers inside must be restarted by other means.\n"


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let workers end, one at each pause of the command."""

    def end_in_order(*rows: Worker) -> None:
        left = list(rows)

        class Clock:
            now = 0.0

            def monotonic(self) -> float:
                return self.now

            def sleep(self, seconds: float) -> None:
                self.now += seconds
                if left:
                    left.pop(0).delete()

        monkeypatch.setattr(queue_restart, "time", Clock())

    return end_in_order


def test_it_waits_for_the_end_of_all(ending: Any) -> None:
    rows = [working(pid=number) for number in range(3)]
    working(pid=9, is_embedded=True)
    ending(*rows)
    ran = run("queue_restart", "--wait", "60")
    assert ran.code == 0
    assert ran.lines[-1] == "status=ended workers=3"
    assert "waiting for 2 of 3 worker processes" in ran.err


def test_it_waits_no_longer_than_it_was_told(ending: Any) -> None:
    rows = [working(pid=number) for number in range(3)]
    ending(rows[0])
    ran = run("queue_restart", "--wait", "5")
    assert (ran.code, ran.error) == (3, "2 worker processes did not end in 5 s.")


def test_a_wait_that_is_no_number_is_a_usage_error() -> None:
    assert run("queue_restart", "--wait", "soon").code == 2
    assert not WorkerRequest.objects.exists()
