"""Several worker processes on one database, some of which are killed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F

from django_jobqueue import dispatch_many
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.models import FailedJob, Job
from shop.models import Customer
from tests.helpers.aliases import database_alias
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes, database_settings
from tests.helpers.threads import in_threads
from tests.helpers.waiting import wait_until
from tests.helpers.work.apps import STATEMENTS_VARIABLE
from tests.helpers.work.jobs import act, add_customer, die, fail, hold, hold_once, mark, signal_elsewhere

pytestmark = pytest.mark.process

RETRY_AFTER = 1
# For what is renewed: a third of it is time enough on a busy machine.
RENEWED_RETRY_AFTER = 3
SECOND = timedelta(seconds=1)
OPTIONS_OF_SQLITE: dict[str, dict[str, Any]] = {
    "as advised": {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
    "deferred transactions": {"timeout": 20, "init_command": "PRAGMA journal_mode=WAL;"},
    "deferred transactions, no WAL": {"timeout": 20},
}


def wait_for_marks(marks: Marks, event: str, count: int) -> None:
    wait_until(lambda: marks.count(event) >= count, lambda: f"{count} marks {event!r}, of {marks.count(event)}")


def wait_for_empty_queue() -> None:
    wait_until(lambda: not Job.objects.exists(), lambda: f"no job is left, of {Job.objects.count()}")


def the_job(job_id: UUID) -> Job:
    return Job.objects.get(id=job_id)


def dead_letters() -> list[tuple[str, int, str]]:
    rows = FailedJob.objects.order_by("id")
    return [(row.name, row.attempts, row.exception_message) for row in rows]


@pytest.fixture
def impatient(processes: Processes) -> Processes:
    """Workers whose reservations end soon."""
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = RETRY_AFTER
    return processes


@pytest.fixture
def renewing(processes: Processes) -> Processes:
    """Workers whose reservations end soon, unless they are renewed."""
    processes.settings["JOBQUEUE"]["RETRY_AFTER"] = RENEWED_RETRY_AFTER
    return processes


# Sharing


def test_four_workers_share_2000_jobs_and_each_runs_once(processes: Processes, marks: Marks) -> None:
    """F01"""
    workers = processes.workers(4)
    ids = dispatch_many(mark.s(number) for number in range(2000))
    wait_for_empty_queue()
    assert [worker.stop() for worker in workers] == [0, 0, 0, 0]
    ran = marks.read("ran")
    assert sorted(run.job_id for run in ran) == sorted(map(str, ids))
    assert {run.attempt for run in ran} == {1}
    assert len({run.pid for run in ran}) > 1, "one worker did everything"
    assert dead_letters() == []
    assert [worker.complaints for worker in workers] == [[], [], [], []]


def test_four_workers_that_end_when_all_is_done_run_each_job_once(processes: Processes, marks: Marks) -> None:
    ids = dispatch_many(mark.s(number) for number in range(200))
    workers = [processes.worker("--stop-when-empty") for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0, 0, 0, 0]
    assert sorted(run.job_id for run in marks.read("ran")) == sorted(map(str, ids))
    assert not Job.objects.exists()


def test_dispatching_meanwhile_makes_no_worker_fail_and_no_job_run_twice(processes: Processes, marks: Marks) -> None:
    """F16: Deadlocks and lock waits, between workers and with callers, are nobody's failure."""
    workers = processes.workers(4)

    def produce(number: int) -> list[UUID]:
        ids = []
        for step in range(100):
            ids.append(mark.using(priority=step % 3).dispatch(step).id)
            with transaction.atomic():
                ids += dispatch_many(mark.using(queue=f"q{number}").s(step) for _ in range(5))
        return ids

    ids = [job_id for found in in_threads(3, produce) for job_id in found]
    wait_for_empty_queue()
    assert [worker.stop() for worker in workers] == [0, 0, 0, 0]
    assert sorted(run.job_id for run in marks.read("ran")) == sorted(map(str, ids))
    assert dead_letters() == []
    assert [worker.complaints for worker in workers] == [[], [], [], []]


def test_a_rolled_back_dispatch_never_runs(processes: Processes, marks: Marks) -> None:
    (worker,) = processes.workers(1)
    with transaction.atomic():
        mark.dispatch("rolled back")
        dispatch_many([mark.s("rolled back"), mark.s("rolled back")])
        transaction.set_rollback(True)
    with transaction.atomic():
        mark.dispatch("kept")
        with transaction.atomic():
            mark.dispatch("savepoint")
            transaction.set_rollback(True)
    wait_for_marks(marks, "ran", 1)
    mark.dispatch("last")
    wait_for_marks(marks, "ran", 2)
    assert worker.stop() == 0
    assert [run.key for run in marks.read()] == ["kept", "last"]


# Killed workers


def test_the_job_of_a_killed_worker_runs_again_and_finishes(impatient: Processes, marks: Marks) -> None:
    hold.dispatch("a")
    (worker,) = impatient.workers(1)
    wait_for_marks(marks, "started", 1)
    worker.kill()
    marks.let_go()
    impatient.workers(1)
    wait_for_empty_queue()
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("started", 2), ("ran", 2)]
    first, second = marks.read("started")
    assert second.at - first.at >= RETRY_AFTER


def test_jobs_that_were_reserved_beside_a_killed_workers_job_lose_no_attempt(
    impatient: Processes, marks: Marks
) -> None:
    worker = impatient.worker("--queue", "default")
    dispatch_many(act.s("first") for _ in range(1500))  # so that it reserves many at a time
    wait_for_empty_queue()
    dispatch_many([act.s(0, "die once"), *(act.s(number) for number in range(1, 100))])
    assert worker.wait() == -signal.SIGKILL
    reserved = list(Job.objects.values_list("state", "attempts", "alone", "token"))
    assert [row[:3] for row in reserved] == [("reserved", 1, False)] * 100
    assert len({row[3] for row in reserved}) == 1
    impatient.workers(1)
    wait_for_empty_queue()
    for number in range(100):
        assert [run.attempt for run in marks.read("ran", number)] == [1]
    assert marks.count("started", 0) == 2
    assert dead_letters() == []


def test_a_job_that_kills_every_worker_harms_no_other(impatient: Processes, marks: Marks) -> None:
    worker = impatient.worker("--queue", "default")
    dispatch_many(act.s("first") for _ in range(1500))
    wait_for_empty_queue()
    dispatch_many([act.s("poison", "die"), *(act.s(number) for number in range(99))])
    restart_until_dead_letter(impatient, worker)
    impatient.run("queue_work", "--stop-when-empty")
    assert marks.count("started", "poison") == 1 + 3  # one among the others, and three times alone
    for number in range(99):
        assert [run.attempt for run in marks.read("ran", number)] == [1]
    (letter,) = dead_letters()
    assert letter[:2] == ("work.act", 3)
    assert not Job.objects.exists()


def test_a_job_that_kills_its_worker_starts_as_often_as_it_may(impatient: Processes, marks: Marks) -> None:
    die.dispatch()
    restart_until_dead_letter(impatient, impatient.worker())
    assert [run.attempt for run in marks.read("started")] == [1, 2, 3]
    (letter,) = dead_letters()
    assert letter[:2] == ("work.die", 3)
    assert letter[2].startswith("Reserved 3 times without finishing")
    assert not Job.objects.exists()


def test_a_job_with_one_attempt_is_not_started_again_after_its_worker_was_killed(
    impatient: Processes, marks: Marks
) -> None:
    hold_once.dispatch()
    (worker,) = impatient.workers(1)
    wait_for_marks(marks, "started", 1)
    worker.kill()
    marks.let_go()
    (other,) = impatient.workers(1)
    wait_until(dead_letters, "the job is a dead letter")
    mark.dispatch()
    wait_for_marks(marks, "ran", 1)
    assert other.stop() == 0
    assert marks.count("started") == 1
    ((name, attempts, message),) = dead_letters()
    assert (name, attempts) == ("work.hold_once", 1)
    assert message.startswith("Reserved once without finishing")


def test_what_an_atomic_job_wrote_goes_with_its_killed_worker(impatient: Processes, marks: Marks) -> None:
    add_customer.dispatch("Ada", "die once")
    assert impatient.worker().wait() == -signal.SIGKILL
    assert not Customer.objects.exists()
    impatient.workers(1)
    wait_for_empty_queue()
    assert marks.count("started") == 2
    assert Customer.objects.count() == 1


def test_a_worker_that_slept_past_its_reservation_can_end_nothing(impatient: Processes, marks: Marks) -> None:
    hold.dispatch()
    (paused,) = impatient.workers(1)
    wait_for_marks(marks, "started", 1)
    paused.signal(signal.SIGSTOP)
    (other,) = impatient.workers(1)
    wait_for_marks(marks, "started", 2)
    job = Job.objects.get()
    marks.let_go()
    wait_for_empty_queue()
    assert other.stop() == 0
    retried = hold.using(delay=3600).dispatch()
    before = Job.objects.values().get()
    paused.signal(signal.SIGCONT)
    wait_for_marks(marks, "ran", 2)
    assert paused.stop() == 0
    assert str(job.id) in paused.output
    assert "was lost" in paused.output
    assert Job.objects.values().get() == before
    assert before["id"] == retried.id
    assert dead_letters() == []


def outlived_its_job(worker: Process) -> bool:
    """Whether the job became a dead letter before it could kill the worker."""
    wait_until(lambda: not worker.is_running or dead_letters(), "the worker was killed, or gave up the job")
    return worker.is_running


def restart_until_dead_letter(processes: Processes, worker: Process) -> None:
    """A supervisor that starts a killed worker again, six times at most."""
    for _ in range(6):
        wait_until(lambda w=worker: not w.is_running or dead_letters(), "the worker was killed, or gave up the job")
        if worker.is_running:
            assert worker.stop() == 0
            return
        assert worker.wait() == -signal.SIGKILL
        worker = processes.worker("--queue", "default")
    raise AssertionError("the job is still not a dead letter")


# Long jobs


def test_a_job_longer_than_its_reservation_runs_once(renewing: Processes, marks: Marks) -> None:
    workers = renewing.workers(2)
    held = hold.dispatch()
    wait_for_marks(marks, "started", 1)
    longer = 2.5 * RENEWED_RETRY_AFTER * SECOND
    wait_until(lambda: the_job(held.id).reserved_until - the_job(held.id).reserved_at > longer, "it was renewed")
    marks.let_go()
    wait_for_empty_queue()
    assert [worker.stop() for worker in workers] == [0, 0]
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("ran", 1)]
    assert [worker.complaints for worker in workers] == [[], []]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_an_atomic_job_longer_than_its_reservation_runs_once(impatient: Processes, marks: Marks, level: str) -> None:
    """Its lock is its lease: nobody renews it, and nobody rescues it, at whatever level its transaction is."""
    if connection.vendor != "sqlite":
        numbers = {"read committed": 2, "repeatable read": 3, "serializable": 4}
        wanted = numbers[level] if connection.vendor == "postgresql" else level
        impatient.databases["default"]["OPTIONS"]["isolation_level"] = wanted
    elif level != "serializable":
        pytest.skip("SQLite has one level")
    workers = impatient.workers(2)
    add_customer.dispatch("Ada", "hold")
    wait_for_marks(marks, "started", 1)
    (started,) = marks.read("started")
    wait_until(lambda: time.monotonic() - started.at > 3 * RETRY_AFTER, "its reservation has ended")
    assert Job.objects.get().state == "reserved"
    marks.let_go()
    wait_for_empty_queue()
    assert [worker.stop() for worker in workers] == [0, 0]
    assert [(run.event, run.attempt) for run in marks.read()] == [("started", 1), ("ran", 1)]
    assert Customer.objects.count() == 1
    assert [worker.complaints for worker in workers] == [[], []]


def test_a_second_signal_gives_back_what_every_thread_runs(processes: Processes, marks: Marks) -> None:
    ids = dispatch_many(hold.s(number) for number in range(4))
    worker = processes.worker("--workers", "4")
    wait_for_marks(marks, "started", 4)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert worker.wait() in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    left = Job.objects.order_by("id").values_list("id", "state", "attempts")
    assert list(left) == [(job_id, "ready", 0) for job_id in ids]
    assert marks.count("ran") == 0


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_signal_that_interrupts_no_wait_is_heard(processes: Processes, threads: str) -> None:
    """As one that comes just before the main thread begins to wait, or is delivered to another thread."""
    signal_elsewhere.dispatch()
    worker = processes.worker("--workers", threads, "--sleep", "60")
    assert worker.wait(20) == 0


# Dead letters


def test_two_people_who_retry_everything_at_once_retry_each_job_once(processes: Processes, marks: Marks) -> None:
    ids = dispatch_many(fail.s(number) for number in range(200))
    processes.run("queue_work", "--stop-when-empty")
    assert FailedJob.objects.count() == 200
    commands = [processes.start("queue_retry", "all") for _ in range(2)]
    assert {command.wait() for command in commands} <= {0, 1, 3}
    assert [command.complaints for command in commands] == [[], []]
    assert not FailedJob.objects.exists()
    assert set(Job.objects.values_list("id", flat=True)) == set(ids)
    processes.run("queue_work", "--stop-when-empty")
    assert Counter(run.job_id for run in marks.read("started")) == {str(job_id): 2 for job_id in ids}
    assert set(FailedJob.objects.values_list("retries", flat=True)) == {1}


def test_two_people_who_forget_everything_at_once_both_succeed(processes: Processes) -> None:
    fail.dispatch()
    processes.run("queue_work", "--stop-when-empty")
    letter = FailedJob.objects.get()
    copies = [{**vars(letter), "id": None, "job_id": new_job_id()} for _ in range(3000)]
    FailedJob.objects.bulk_create(
        FailedJob(**{key: value for key, value in copy.items() if key != "_state"}) for copy in copies
    )
    commands = [processes.start("queue_forget", "all") for _ in range(2)]
    assert {command.wait() for command in commands} <= {0, 1, 3}
    assert [command.complaints for command in commands] == [[], []]
    assert not FailedJob.objects.exists()


# Resources


def connections_of(worker: Process) -> int:
    """How many connections to the database a worker has open."""
    if connection.vendor == "sqlite":
        return worker.open_files().count(str(connection.settings_dict["NAME"])) if worker.is_running else 0
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'many-workers'")
        else:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
        return cursor.fetchone()[0]


def test_eight_threads_hold_two_connections_each_at_most_and_none_at_the_end(renewing: Processes, marks: Marks) -> None:
    """F72: one for the loop, and one for its keeper once a job took long; one that listens, one to start, and now and
    then one to say that the process lives."""
    if connection.vendor == "postgresql":
        renewing.databases["default"]["OPTIONS"]["application_name"] = "many-workers"
    seen = [0]

    def ran(count: int) -> bool:
        seen.append(connections_of(worker))
        return marks.count("ran") >= count

    (worker,) = renewing.workers(1, "--workers", "8")
    wait_until(lambda: worker.output.count("started") >= 8, "each thread has started")
    dispatch_many(mark.s(number) for number in range(500))
    wait_until(lambda: ran(500), "the quick jobs ran")
    dispatch_many(hold.s(number) for number in range(8))
    wait_for_marks(marks, "started", 8)
    renewed = Job.objects.filter(reserved_until__gt=F("reserved_at") + 1_200_000 * RENEWED_RETRY_AFTER)
    wait_until(lambda: renewed.count() == 8, "each keeper has renewed")
    seen.append(connections_of(worker))
    marks.let_go()
    wait_until(lambda: ran(508), "the long jobs ran")
    assert 8 <= max(seen) <= 2 * 8 + 3
    assert worker.stop() == 0
    wait_until(lambda: connections_of(worker) == 0, lambda: f"no connection is left, of {connections_of(worker)}")


def test_an_idle_worker_asks_little(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "statements"
    processes.environment[STATEMENTS_VARIABLE] = str(file)
    sleep, watched = 0.2, 3.0
    (worker,) = processes.workers(1, "--sleep", str(sleep), "--queue", "default")

    def moments(text: str = "") -> list[float]:
        lines = file.read_text().splitlines() if file.exists() else []
        return [float(line.partition("\t")[0]) for line in lines if text in line]

    wait_until(lambda: len(moments()) > 20, "it has looked for jobs a few times")
    begun, used = moments()[-1], worker.cpu_seconds()
    wait_until(lambda: moments()[-1] > begun + watched, "it has looked for a while")
    used = worker.cpu_seconds() - used
    polls = [moment for moment in moments("ready_at") if moment > begun]
    assert watched / sleep / 2 < len(polls) <= watched / (0.7 * sleep) + 2
    assert len([moment for moment in moments() if moment > begun]) <= 4 * len(polls)
    assert used < watched / 4
    assert worker.stop() == 0


# SQLite, of which one connection writes at a time


@pytest.mark.parametrize("options", OPTIONS_OF_SQLITE.values(), ids=OPTIONS_OF_SQLITE.keys())
def test_nobody_is_told_that_the_database_is_locked(
    processes: Processes, marks: Marks, settings: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    """F74: A read that turns into a write fails at once, whatever the timeout; so none does."""
    if connection.vendor != "sqlite":
        pytest.skip("only one connection of SQLite can write")
    with database_alias("file", NAME=str(tmp_path / "own.sqlite3")) as own:
        own.settings_dict["OPTIONS"].clear()
        own.settings_dict["OPTIONS"].update(options)
        call_command("migrate", "django_jobqueue", database="file", verbosity=0)
        processes.databases["default"] = database_settings("file", NAME=str(tmp_path / "own.sqlite3"))
        settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database", "DATABASE": "file"}}}
        workers = processes.workers(3)
        ids = [mark.dispatch(number).id for number in range(300)]
        wait_until(lambda: not Job.objects.using("file").exists(), "no job is left")
        assert [worker.stop() for worker in workers] == [0, 0, 0]
        assert sorted(run.job_id for run in marks.read("ran")) == sorted(map(str, ids))
        assert [worker.complaints for worker in workers] == [[], [], []]
