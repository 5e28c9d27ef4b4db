"""The row of a worker process: written beside the work, taken back at a clean stop, and needed by nobody."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

import django_jobqueue
from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.ledger import Ledger
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.models import FailedJob, Job, QueueStat, Worker
from django_jobqueue.running import housekeeping
from django_jobqueue.running.housekeeping import Housekeeper
from django_jobqueue.running.options import WorkerOptions, WorkerStats
from django_jobqueue.running.pool import Pool
from tests.drivers.contract import Clock
from tests.edges.commands import dead_letter, dead_letters
from tests.edges.pages import working
from tests.helpers.gates import Gate
from tests.helpers.redis import redis_driver
from tests.helpers.waiting import wait_until

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done in the ledger, in order; and beats follow each other at once."""
    calls: list[str] = []
    monkeypatch.setattr(housekeeping, "BEAT_SECONDS", 0.01)
    for name in ("beat", "leave"):
        real = getattr(Ledger, name)

        def call(self: Ledger, *given: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            calls.append(name)
            return real(self, *given, **more)

        monkeypatch.setattr(Ledger, name, call)
    return calls


@pytest.fixture
def keep(database: Driver) -> Iterator[Callable[..., Housekeeper]]:
    made: list[Housekeeper] = []

    def start(stats: Callable[[], WorkerStats] = WorkerStats, **options: Any) -> Housekeeper:
        told = {name: options.pop(name) for name in ("is_well", "on_well") if name in options}
        made.append(Housekeeper(WorkerOptions(**options), [database], stats, **told))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_a_process_is_known_while_it_works_and_gone_when_it_has_stopped(
    database: Driver, register: Register, gate: Gate, start: Any
) -> None:
    @register()
    def work() -> None:
        gate.pass_through()

    work.dispatch()
    pool = Pool(WorkerOptions.from_settings(queues=("default", "mail"), workers=2))
    running = start(pool)
    gate.wait_until_entered()
    row = wait_until(Worker.objects.first, "it is known")
    assert (row.pid, row.queues, row.workers) == (os.getpid(), "default,mail", 2)
    assert (row.version, row.is_embedded) == (django_jobqueue.__version__, False)
    assert row.memory is None or row.memory > 1_000_000
    gate.open()
    pool.stopping.ask("the end")
    running.end()
    assert not Worker.objects.exists()


def test_it_tells_what_was_done_so_far(keep: Any, calls: list[str]) -> None:
    stats = WorkerStats()
    keep(lambda: stats)
    wait_until(Worker.objects.exists, "it is known")
    stats.processed, stats.failed = 7, 2
    wait_until(lambda: Worker.objects.filter(processed=7, failed=2).exists(), "the next heartbeat")


def test_a_store_that_refuses_is_asked_again_and_nobody_is_told(
    keep: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beat = Ledger.beat

    def refuse_twice(self: Ledger, *given: Any, **more: Any) -> None:
        if calls.count("refused") < 2:
            calls.append("refused")
            raise OperationalError("gone")
        beat(self, *given, **more)

    monkeypatch.setattr(Ledger, "beat", refuse_twice)
    keep()
    wait_until(Worker.objects.exists, "it is known at last")
    assert caplog.records == []


def test_a_mistake_in_it_ends_nothing(
    keep: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beat = Ledger.beat
    monkeypatch.setattr(Ledger, "beat", lambda self, report: {}["mistake"])
    keep()
    wait_until(lambda: "housekeeper" in caplog.text, "it is logged")
    monkeypatch.setattr(Ledger, "beat", beat)
    wait_until(Worker.objects.exists, "it goes on")


def test_a_mistake_beside_the_store_ends_nothing_either(
    keep: Any, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    keep(is_well=lambda: {}["mistake"])
    wait_until(lambda: calls.count("beat") >= 3, "it goes on")
    assert "housekeeper" in caplog.text


def test_a_store_that_does_not_answer_does_not_hold_up_the_end(
    keep: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LAST_SECONDS", 0.05)
    monkeypatch.setattr(Ledger, "beat", lambda self, report: gate.pass_through())
    housekeeper = keep()
    gate.wait_until_entered()
    housekeeper.end()
    assert housekeeper._thread.is_alive()
    gate.open()
    housekeeper._thread.join()


def test_it_says_that_all_is_well_while_the_loops_turn_and_the_store_answers(
    keep: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    well: list[int] = []
    turns = [True]
    keep(is_well=lambda: turns[0], on_well=lambda: well.append(len(calls)))
    wait_until(lambda: len(well) >= 3, "it says so at every heartbeat")
    turns[0] = False
    seen = calls.count("beat")
    wait_until(lambda: calls.count("beat") >= seen + 3, "heartbeats go on")
    said = len(well)
    wait_until(lambda: calls.count("beat") >= seen + 6, "heartbeats go on")
    assert len(well) == said
    turns[0] = True
    wait_until(lambda: len(well) > said, "it says so again")

    def refuse(self: Ledger, report: Any) -> None:
        calls.append("refused")
        raise OperationalError("gone")

    monkeypatch.setattr(Ledger, "beat", refuse)
    wait_until(lambda: "refused" in calls, "a heartbeat is refused")
    said = len(well)
    wait_until(lambda: calls.count("refused") >= 4, "more are")
    assert len(well) == said


def test_what_is_old_is_deleted_by_itself_and_that_is_logged(
    keep: Any, calls: list[str], settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_jobqueue")
    monkeypatch.setattr(housekeeping, "CHUNK", 2)
    monkeypatch.setattr(housekeeping, "MOST_CHUNKS", 2)
    settings.JOBQUEUE = {"PRUNE": {"FAILED": timedelta(days=30)}}
    now = datetime.now(UTC)
    dead_letters(11, failed_at=now - timedelta(days=31))
    young = dead_letter(failed_at=now - timedelta(days=29))
    working(heartbeat_at=now - timedelta(hours=2), name="killed")
    keep()

    def told() -> int:
        return sum(getattr(record, "count", 0) for record in caplog.records)

    wait_until(lambda: told() == 12, lambda: f"12 rows are gone, a few at each heartbeat; it tells of {told()}")
    assert list(FailedJob.objects.all()) == [young]
    assert not Worker.objects.filter(name="killed").exists()


def test_counts_of_old_minutes_are_rolled_up_by_itself_and_that_is_logged(
    keep: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_jobqueue")
    monkeypatch.setattr(housekeeping, "CHUNK", 2)
    monkeypatch.setattr(housekeeping, "MOST_CHUNKS", 2)
    hour = (datetime.now(UTC) - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    for number in range(11):
        QueueStat.objects.create(minute=hour + timedelta(minutes=number), name="shop.work", processed=1)
    keep()

    def told() -> int:
        return sum(record.count for record in caplog.records if getattr(record, "event", "") == "rows_rolled_up")

    wait_until(lambda: told() == 11, lambda: f"all are rolled up, a few at each heartbeat; it tells of {told()}")
    (row,) = QueueStat.objects.all()
    assert (row.minute, row.processed) == (hour, 11)


def test_dead_letters_are_not_deleted_unless_a_setting_says_so(keep: Any, calls: list[str]) -> None:
    dead_letter(failed_at=datetime(1999, 1, 1, tzinfo=UTC))
    keep()
    wait_until(lambda: calls.count("beat") >= 3, "a few heartbeats")
    assert FailedJob.objects.count() == 1


def test_a_name_stands_for_the_host_in_the_list(keep: Any) -> None:
    keep(name="mailer")
    row = wait_until(Worker.objects.first, "it is known")
    assert (row.name, row.host) == ("mailer", housekeeping.host_name())


@pytest.mark.redis
def test_a_process_that_serves_only_redis_is_known_too_and_prunes_dead_letters(
    transactional_db: None, settings: Any, calls: list[str]
) -> None:
    settings.JOBQUEUE = {"PRUNE": {"FAILED": timedelta(days=30)}}
    dead_letter(failed_at=datetime.now(UTC) - timedelta(days=31), connection="fast")
    with redis_driver("fast") as fast:
        housekeeper = Housekeeper(WorkerOptions(), [fast], WorkerStats)
        housekeeper.start()
        row = wait_until(Worker.objects.first, "it is known")
        wait_until(lambda: not FailedJob.objects.exists(), "its old dead letter is gone")
        housekeeper.end()
    assert row.pid == os.getpid()


def test_in_memory_nobody_keeps_house(memory: Driver) -> None:
    before = set(threading.enumerate())
    housekeeper = Housekeeper(WorkerOptions(), [memory], WorkerStats)
    housekeeper.start()
    assert set(threading.enumerate()) <= before  # those of another test may end meanwhile
    housekeeper.end()


def test_in_a_callers_transaction_no_other_connection_is_opened(database: Driver) -> None:
    """As in a TestCase: it would not see the job, and on SQLite it would wait for the caller."""
    before = set(threading.enumerate())
    with transaction.atomic():
        housekeeper = Housekeeper(WorkerOptions(), [database], WorkerStats)
        housekeeper.start()
        assert set(threading.enumerate()) <= before  # those of another test may end meanwhile


def test_a_reservation_is_rescued_although_its_worker_looks_alive(
    database: Driver, register: Register, worker: Any, make_worker: Any, clock: Clock
) -> None:
    """F19: its host and its process id are those of a worker that lives; only the reservation's time counts."""
    started: list[int] = []

    @register()
    def work() -> None:
        started.append(1)

    job_id = work.dispatch().id
    lost = make_worker()
    reserved = database.reserve(
        "default", lost.identity, ReserveLimit(rows=1, max_attempts=3), retry_after=90, now=clock.now
    )
    assert [job.id for job in reserved.jobs] == [job_id]
    housekeeper = Housekeeper(WorkerOptions(), [database], WorkerStats)
    database.ledger.beat(housekeeper._report())  # type: ignore[union-attr]
    assert worker.identity.rpartition(":")[0] == lost.identity.rpartition(":")[0]
    assert worker.identity != lost.identity
    assert worker.work_once(now=clock.tick(91))
    assert started == [1]
    assert not Job.objects.exists()
