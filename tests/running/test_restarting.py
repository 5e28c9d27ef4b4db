"""``queue_restart``: every worker that had started ends after its job, and none that starts later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError

from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.jobs.workers import Wish
from django_jobqueue.models import Job
from django_jobqueue.running import restarting
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.pool import Pool
from django_jobqueue.running.restarting import Restart
from tests.helpers.gates import Gate
from tests.helpers.listening import Heard
from tests.helpers.waiting import DEADLINE

Register = Callable[..., Callable[[Callable[..., Any]], Any]]
MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


class Told:
    """A ledger that says what a test tells it."""

    database = "default"
    outages = (OperationalError,)

    def __init__(self) -> None:
        self.wish: Wish | Exception | None = None

    def asked(self, name: str) -> Wish | None:
        if isinstance(self.wish, Exception):
            raise self.wish
        return self.wish


class Watch:
    """A process that started 100 seconds ago, and looks when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(restarting, "STARTED", 900.0)
        monkeypatch.setattr(restarting, "time", self)
        self.ledger = Told()
        self.restart = Restart([self.ledger])  # type: ignore[list-item]

    def monotonic(self) -> float:
        return self.now

    def look(self, wish: Wish | Exception | None) -> str:
        self.now += 1
        self.ledger.wish = wish
        self.restart.look()
        return self.restart.reason


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def wish(ago: float, later: float = 0) -> Wish:
    return Wish(asked_at=MOMENT + timedelta(seconds=later), ago=ago)


def test_what_was_asked_before_the_start_is_not_heeded(watch: Watch) -> None:
    assert watch.look(wish(ago=5000)) == ""
    assert watch.look(wish(ago=5001)) == ""


def test_what_was_asked_between_the_start_and_the_first_look_is_heeded(watch: Watch) -> None:
    assert watch.look(wish(ago=50)) == "restart"


def test_what_is_asked_later_is_heeded(watch: Watch) -> None:
    assert watch.look(None) == ""
    assert watch.look(wish(ago=0.5)) == "restart"


def test_what_is_asked_again_is_heeded_although_the_stores_clock_jumped(watch: Watch) -> None:
    assert watch.look(wish(ago=5000)) == ""
    assert watch.look(wish(ago=9000, later=-60)) == "restart"


def test_a_store_that_does_not_answer_is_asked_again(watch: Watch) -> None:
    assert watch.look(OperationalError("gone")) == ""
    assert watch.look(wish(ago=50)) == "restart"


def test_the_job_in_hand_is_finished_and_no_other_begun(
    database: Driver, register: Register, gate: Gate, start: Any, heard: Heard
) -> None:
    @register()
    def work(holds: bool) -> None:
        if holds:
            gate.pass_through()

    work.dispatch(True)
    restart = Restart()
    running = start(Pool(WorkerOptions.from_settings(grace=0.01), restart=restart))
    gate.wait_until_entered()
    restart.ask("restart")
    work.dispatch(False)
    gate.open()
    assert running.end().processed == 1
    assert heard.one("worker_stopped")["reason"] == "restart"
    assert list(Job.objects.values_list("state", "attempts")) == [("ready", 0)]


def test_a_database_that_does_not_answer_holds_up_no_loop(database: Driver, register: Register, start: Any) -> None:
    """As where a loop serves Redis only, and the database is there for what is kept beside the jobs."""
    is_asked, answers, ran = Event(), Event(), Event()

    class Silent(Told):
        def asked(self, name: str) -> Wish | None:
            is_asked.set()
            answers.wait(DEADLINE)
            return None

    @register()
    def work() -> None:
        ran.set()

    pool = Pool(WorkerOptions.from_settings(sleep=0.05), restart=Restart([Silent()]))  # type: ignore[list-item]
    running = start(pool)
    assert is_asked.wait(DEADLINE)
    work.dispatch()
    assert ran.wait(DEADLINE)
    answers.set()
    pool.stopping.ask("the end")
    assert running.end().processed == 1


def test_a_worker_asks_its_store(database: Driver, start: Any) -> None:
    assert isinstance(database.ledger, Ledger)
    running = start(Pool(WorkerOptions.from_settings(workers=2, sleep=0.05), restart=Restart([database.ledger])))
    database.ledger.ask("restart")
    running.end()
