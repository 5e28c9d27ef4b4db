"""``manage.py queue_work --processes``: processes that are killed, hang, are recycled, and are stopped together."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models import F

from django_jobqueue import dispatch_many
from django_jobqueue.drivers import connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from django_jobqueue.models import FailedJob, Job
from tests.helpers.marks import Marks
from tests.helpers.processes import Process, Processes
from tests.helpers.waiting import DEADLINE, wait_until
from tests.helpers.work.jobs import act, eat_memory, fail, hang, hold, hold_once, mark, query

pytestmark = pytest.mark.process


def start(processes: Processes, *options: str, ready: int = 2) -> Process:
    """A supervisor whose processes look for jobs."""
    supervisor = processes.worker(*options)

    def has_started() -> bool:
        assert supervisor.is_running, supervisor.output
        return len(children_pids(supervisor)) >= ready

    wait_until(has_started, lambda: f"{ready} processes have started:\n{supervisor.output}")
    return supervisor


def wait_for_empty_queue() -> None:
    wait_until(lambda: not Job.objects.exists(), lambda: f"no job is left, of {list(Job.objects.values())}")


def wait_for_marks(marks: Marks, event: str, count: int, key: object = None) -> None:
    wait_until(lambda: marks.count(event, key) >= count, lambda: f"{count} marks {event!r}: {marks.read()}")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def dead_letters() -> list[tuple[str, int, str]]:
    return list(FailedJob.objects.order_by("id").values_list("name", "attempts", "exception_class"))


# Killed processes


def test_the_job_of_a_killed_process_starts_again_in_less_than_three_seconds(
    processes: Processes, marks: Marks
) -> None:
    supervisor = start(processes, "--processes", "2")
    hold.dispatch("a")
    wait_for_marks(marks, "started", 1)
    (first,) = marks.read("started")
    assert first.pid != supervisor.pid
    os.kill(first.pid, signal.SIGKILL)
    wait_for_marks(marks, "started", 2)
    marks.let_go()
    wait_for_empty_queue()
    _, second = marks.read("started")
    assert second.at - first.at < 3
    assert second.attempt == 2
    assert "was killed by SIGKILL; it is replaced" in supervisor.output
    mark.dispatch("after")
    wait_for_marks(marks, "ran", 1, "after")
    assert supervisor.stop() == 0


def test_a_job_that_may_run_once_is_not_started_again(processes: Processes, marks: Marks) -> None:
    supervisor = start(processes, "--processes", "1", ready=1)
    hold_once.dispatch()
    wait_for_marks(marks, "started", 1)
    os.kill(marks.read("started")[0].pid, signal.SIGKILL)
    wait_until(FailedJob.objects.exists, "the job is a dead letter")
    assert dead_letters() == [("work.hold_once", 1, "django_jobqueue.exceptions.ReservationLost")]
    assert supervisor.stop() == 0
    assert marks.count("started") == 1


def test_one_poison_job_among_300_is_the_only_one_that_pays(processes: Processes, marks: Marks) -> None:
    """F18: three batches of 100, each begun by a process that has learned how quick its jobs are."""
    supervisor = start(processes, "--processes", "1", "--queue", "default", ready=1)
    dispatch_many(act.s("first") for _ in range(1500))
    wait_for_empty_queue()
    dispatch_many([*(act.s(number) for number in range(150)), act.s("poison", "die")])
    dispatch_many(act.s(number) for number in range(150, 299))
    wait_for_empty_queue()
    assert supervisor.stop() == 0
    assert dead_letters() == [("work.act", 3, "django_jobqueue.exceptions.ReservationLost")]
    assert [run.attempt for run in marks.read("started", "poison")] == [1, 2, 3]
    for number in range(299):
        assert {run.attempt for run in marks.read("ran", number)} == {1}, number


def test_when_the_supervisor_is_killed_its_processes_stop_and_give_back_what_they_hold(
    processes: Processes, marks: Marks
) -> None:
    supervisor = start(processes, "--processes", "2", "--grace", "0.3")
    hold.dispatch()
    wait_for_marks(marks, "started", 1)
    children = children_pids(supervisor)
    assert len(children) == 2
    supervisor.kill()
    wait_until(lambda: not any(map(is_alive, children)), "its processes have ended")
    assert list(Job.objects.values_list("state", "attempts")) == [("ready", 0)]


def test_a_killed_supervisor_leaves_no_files_behind(processes: Processes, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    processes.environment["TMPDIR"] = str(temporary)
    supervisor = start(processes, "--processes", "2")
    assert [path.name.startswith("jobqueue-") for path in temporary.iterdir()] == [True]
    supervisor.kill()
    wait_until(lambda: not list(temporary.iterdir()), "the last process has removed them")


# Timeouts that nothing inside the process can enforce


@pytest.mark.parametrize("how", ["lock", "interpreter"])
def test_a_job_that_nothing_reaches_is_ended_with_the_stack_that_it_hung_in(
    processes: Processes, marks: Marks, how: str
) -> None:
    """F53, in its worst form."""
    supervisor = start(processes, "--processes", "1", "--workers", "2", ready=1)
    hold.dispatch("beside")
    wait_for_marks(marks, "started", 1)
    hang.dispatch(how)
    wait_until(FailedJob.objects.exists, "the job is a dead letter")
    marks.let_go()
    wait_for_empty_queue()
    assert supervisor.stop() == 0
    letter = FailedJob.objects.get()
    assert (letter.name, letter.attempts) == ("work.hang", 1)
    assert letter.exception_class == "django_jobqueue.exceptions.JobTimeout"
    text = letter.errors
    assert "work/jobs.py" in text
    assert "in hang" in text
    assert "running/worker.py" not in text
    # The job beside it is not to blame.
    assert [run.attempt for run in marks.read("started", "beside")] == [1, 1]
    assert "had not ended after its timeout; it is replaced" in supervisor.output


# Stopping


def test_sigterm_among_mixed_jobs_ends_all_and_spends_nothing(processes: Processes, marks: Marks) -> None:
    supervisor = start(processes, "--processes", "2", "--workers", "4", "--grace", "20")
    holding = [hold.dispatch(f"hold {number}") for number in range(8)]
    wait_for_marks(marks, "started", 8)
    dispatch_many(mark.s(number) for number in range(192))
    supervisor.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in supervisor.output, lambda: supervisor.output)
    marks.let_go()
    assert supervisor.wait(20) == 0
    assert set(Job.objects.values_list("state", "attempts")) == {("ready", 0)}
    again = processes.run("queue_work", "--processes", "2", "--workers", "4", "--stop-when-empty")
    assert again.wait() == 0
    assert not Job.objects.exists()
    assert dead_letters() == []
    assert {run.attempt for run in marks.read()} == {1}
    assert marks.count("ran") == 192 + len(holding)


def test_a_second_signal_gives_the_jobs_back_and_stops_at_once(processes: Processes, marks: Marks) -> None:
    supervisor = start(processes, "--processes", "2", "--grace", "50")
    dispatch_many([hold.s(1), hold.s(2)])
    wait_for_marks(marks, "started", 2)
    supervisor.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in supervisor.output, lambda: supervisor.output)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(20) == 128 + signal.SIGTERM
    assert set(Job.objects.values_list("state", "attempts")) == {("ready", 0)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_are_passed_on(processes: Processes, number: signal.Signals) -> None:
    supervisor = start(processes, "--processes", "2")
    supervisor.signal(number)
    assert supervisor.wait(DEADLINE) == 0


def test_a_signal_during_the_start_is_obeyed(processes: Processes) -> None:
    mark.dispatch()
    supervisor = processes.worker("--processes", "2")
    wait_until(lambda: "jobqueue" in " ".join(map(str, children_of(supervisor.pid))), "a process has been started")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait(DEADLINE) == 0
    assert not Job.objects.filter(attempts__gt=0).exists()


def children_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/cmdline").read_text() for child in tasks]


# Recycling


def test_a_process_is_replaced_after_max_jobs(processes: Processes, marks: Marks) -> None:
    supervisor = start(processes, "--processes", "1", "--max-jobs", "10", ready=1)
    dispatch_many(mark.s(number) for number in range(25))
    wait_for_empty_queue()
    assert supervisor.stop() == 0
    assert len({run.pid for run in marks.read("ran")}) == 3
    assert {run.attempt for run in marks.read("ran")} == {1}


def test_a_process_that_is_full_ends_with_12_and_is_replaced(processes: Processes, marks: Marks) -> None:
    eat_memory.dispatch(300)
    assert processes.run("queue_work", "--memory", "250").wait() == 12
    supervisor = start(processes, "--processes", "1", "--memory", "250", ready=1)
    eat_memory.dispatch(301)
    wait_for_marks(marks, "ran", 1, 301)
    wait_until(lambda: "exit code 12" in supervisor.output, lambda: supervisor.output)
    mark.dispatch("after")
    wait_for_marks(marks, "ran", 1, "after")
    assert supervisor.stop() == 0


def test_all_end_when_nothing_is_left_and_the_counts_are_merged(processes: Processes, marks: Marks) -> None:
    processes.settings["LOGGING"] = {"version": 1, "disable_existing_loggers": False}
    dispatch_many(mark.s(number) for number in range(50))
    fail.dispatch()
    supervisor = processes.run("queue_work", "--processes", "2", "--workers", "2", "--stop-when-empty")
    assert supervisor.wait() == 0
    assert re.search(r"event=pool_started .* processes=2 workers=2 ", supervisor.output)
    assert supervisor.output.count("event=pool_started") == supervisor.output.count("event=pool_stopped") == 1
    assert "event=pool_stopped processed=50 released=0 failed=1 lost=0 " in supervisor.output


def test_queue_restart_lets_jobs_finish_and_brings_fresh_processes(processes: Processes, marks: Marks) -> None:
    """Fresh interpreters, so that their code is that of the disk."""
    supervisor = start(processes, "--processes", "2", "--grace", "0.1")
    hold.dispatch("through the restart")
    wait_for_marks(marks, "started", 1)
    before = children_pids(supervisor)
    assert processes.run("queue_restart").output == "status=asked workers=2\n"
    wait_until(lambda: "stopped (restart)" in supervisor.output, lambda: supervisor.output)
    marks.let_go()
    wait_until(lambda: supervisor.output.count("stopped (restart)") == 2, lambda: supervisor.output)
    wait_until(lambda: len(children_pids(supervisor)) == 4, lambda: supervisor.output)
    mark.dispatch("after")
    wait_for_empty_queue()
    assert supervisor.stop() == 0
    assert [run.attempt for run in marks.read()] == [1, 1, 1]
    (after,) = (run.pid for run in marks.read("ran") if run.key == "after")
    assert after not in before


def children_pids(supervisor: Process) -> set[int]:
    """Of the processes that it ever had and that began to work."""
    return {int(pid) for pid in re.findall(r"worker \S+:(\d+):\w+ started", supervisor.output)}


FRESH_JOB = """
from django_jobqueue import job
from tests.helpers.marks import write_mark

@job(name="fresh.say")
def say():
    write_mark("ran", {key!r})
"""


def test_changed_code_is_loaded_and_no_process_is_left_behind(
    processes: Processes, marks: Marks, tmp_path: Path
) -> None:
    app = tmp_path / "code" / "fresh"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "jobs.py").write_text(FRESH_JOB.format(key="old"))
    processes.environment["PYTHONPATH"] = os.pathsep.join([processes.all_variables()["PYTHONPATH"], str(app.parent)])
    processes.settings["INSTALLED_APPS"] = [*settings.INSTALLED_APPS, "tests.helpers.work", "fresh"]

    def say() -> None:
        new = NewJob(id=new_job_id(), name="fresh.say", queue="q", payload='{"args":[],"kwargs":{}}', format=1)
        connections["default"].push([new])

    health = tmp_path / "health"
    supervisor = start(processes, "--reload", "--health-file", str(health), ready=1)
    wait_until(health.exists, "the supervisor says that all is well")
    say()
    wait_for_marks(marks, "ran", 1, "old")

    def change() -> bool:
        """Again, should it have come before the first look at the files."""
        (app / "jobs.py").write_text(FRESH_JOB.format(key="changed"))
        return "stopped (reload)" in supervisor.output

    wait_until(change, lambda: supervisor.output, between=1.5)
    say()
    wait_for_marks(marks, "ran", 1, "changed")
    assert supervisor.stop() == 0
    assert not any(map(is_alive, children_pids(supervisor)))
    assert not health.exists()


# Nothing is shared


def test_processes_have_sessions_of_their_own_and_the_supervisor_has_none(processes: Processes, marks: Marks) -> None:
    """F73, and F88: a process is started afresh, and is told where its notes are and nothing else."""
    supervisor = start(processes, "--processes", "2")
    database = str(processes.databases["default"]["NAME"])
    dispatch_many(query.s(number) for number in range(50))
    wait_for_empty_queue()
    sockets = [target for target in supervisor.open_files() if target.startswith("socket:")]
    assert sockets == []
    assert not any(database in target for target in supervisor.open_files())
    assert marks.count("ran") == 50
    assert supervisor.stop() == 0
    assert supervisor.complaints == []
    assert not FailedJob.objects.exists()
    assert not Job.objects.filter(attempts__gt=F("max_attempts")).exists()
