"""``manage.py queue_work`` as a person, a shell or a supervisor runs it: signals, pipes, terminals, exit codes."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from django_jobqueue import dispatch_many
from django_jobqueue.models import FailedJob, Job
from tests.helpers.marks import Marks
from tests.helpers.processes import ROOT, Process, Processes
from tests.helpers.waiting import DEADLINE, wait_until
from tests.helpers.work.jobs import fail, hold, mark

pytestmark = pytest.mark.process

# What takes a moment when it works, and a minute or for ever when it does not.
AT_ONCE = 10.0
ESCAPES = re.compile(r"\x1b\[[\d;]*m")
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(processes: Processes) -> Iterator[Start]:
    """``manage.py queue_work`` with its output where the test wants it, in the form it has without LOGGING."""
    started = []
    processes.settings["LOGGING"] = {"version": 1, "disable_existing_loggers": False}

    def start(*options: str, **popen: object) -> subprocess.Popen[bytes]:
        environment = {**processes.all_variables(), "TERM": "xterm"}
        for name in ("PYTHONUNBUFFERED", "NO_COLOR", "DJANGO_COLORS"):
            environment.pop(name, None)
        worker: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, str(ROOT / "testproject" / "manage.py"), "queue_work", *options],
            env=environment,
            cwd=ROOT,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen},  # type: ignore[call-overload]
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()
        worker.communicate()


def read_line(worker: subprocess.Popen[bytes]) -> str:
    """The next line of the piped output, when it arrives in time."""
    assert worker.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([worker.stdout], [], [], DEADLINE)
        assert ready, f"nothing was printed after {line!r}"
        character = os.read(worker.stdout.fileno(), 1)
        assert character, f"the output ended after {line!r}: {worker.stderr and worker.stderr.read()!r}"
        line += character
    return line.decode()


def read_until(worker: subprocess.Popen[bytes], text: str) -> str:
    while text not in (line := read_line(worker)):
        pass
    return line


def state() -> list[tuple[str, int]]:
    """Of every job: its state, and the attempts that are spent."""
    return list(Job.objects.order_by("id").values_list("state", "attempts"))


@pytest.fixture
def holding(processes: Processes, marks: Marks) -> Process:
    """A worker that is at a job, with another ready behind it."""
    (worker,) = processes.workers(1, "--grace", "50")
    hold.dispatch()
    wait_until(lambda: marks.count("started") == 1, "the job runs")
    mark.dispatch()
    return worker


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_job_in_hand_finish_and_begins_no_other(
    holding: Process, marks: Marks, number: signal.Signals
) -> None:
    """F22 a, and c."""
    holding.signal(number)
    wait_until(lambda: "stopping" in holding.output, lambda: f"it says that it stops:\n{holding.output}")
    marks.let_go()
    assert holding.wait() == 0
    assert marks.count("ran") == 1
    assert state() == [("ready", 0)]
    assert holding.complaints == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_gives_the_job_back_and_stops_at_once(
    holding: Process, marks: Marks, number: signal.Signals, code: int
) -> None:
    """F22 b, and c."""
    holding.signal(number)
    wait_until(lambda: "stopping" in holding.output, "it says that it stops")
    holding.signal(number)
    assert holding.wait(AT_ONCE) == code
    assert state() == [("ready", 0), ("ready", 0)]
    assert not FailedJob.objects.exists()
    assert marks.count("ran") == 0
    assert "Traceback" not in holding.output


def test_sigquit_gives_the_job_back_and_stops_at_once(holding: Process) -> None:
    holding.signal(signal.SIGQUIT)
    assert holding.wait(AT_ONCE) == 131
    assert state() == [("ready", 0), ("ready", 0)]


def test_at_the_end_of_the_grace_time_the_job_is_given_back(processes: Processes, marks: Marks) -> None:
    (worker,) = processes.workers(1, "--grace", "0.3", "--workers", "2")
    dispatch_many([hold.s(1), hold.s(2)])
    wait_until(lambda: marks.count("started") == 2, "both jobs run")
    worker.signal(signal.SIGTERM)
    assert worker.wait(AT_ONCE) == 143
    assert state() == [("ready", 0), ("ready", 0)]


def test_an_idle_worker_hears_a_signal_in_its_sleep(processes: Processes) -> None:
    """F23."""
    (worker,) = processes.workers(1, "--sleep", "60")
    worker.signal(signal.SIGTERM)
    assert worker.wait(AT_ONCE) == 0


def test_a_worker_whose_store_is_down_hears_a_signal_in_its_pause(
    processes: Processes, marks: Marks, tmp_path: Path
) -> None:
    """F23."""
    other = tmp_path / "other.sqlite3"
    processes.databases["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(other)}
    assert processes.run("migrate", "--verbosity", "0").wait() == 0
    assert processes.run("shell", "-c", "from tests.helpers.work.jobs import hold; hold.dispatch()").wait() == 0
    (worker,) = processes.workers(1, "--sleep", "60", "--grace", "0.5")
    wait_until(lambda: marks.count("started") == 1, "the job runs")
    with closing(sqlite3.connect(other)) as database:
        database.execute("ALTER TABLE django_jobqueue_job RENAME TO away")
    marks.let_go()
    wait_until(lambda: "not reachable" in worker.output, lambda: f"the store is lost:\n{worker.output}")
    worker.signal(signal.SIGTERM)
    assert worker.wait(AT_ONCE) == 0


def test_200_signals_while_it_logs_make_a_clean_stop(start: Start) -> None:
    """F26 a."""
    dispatch_many(mark.s(number) for number in range(3000))
    with Path(os.devnull).open("wb") as sink:
        worker = start("-v2", stdout=sink)
        wait_until(lambda: Job.objects.count() < 3000, "it is at work")
        for number in range(200):
            if worker.poll() is not None:
                break
            worker.send_signal(signal.SIGTERM if number % 2 else signal.SIGHUP)
            time.sleep(0.005)
        _, complaints = worker.communicate(timeout=DEADLINE)
    # A second signal may find a job in hand, and then says so.
    assert worker.returncode in (0, 128 + signal.SIGHUP)
    assert complaints == b""
    assert {found for found, _attempts in state()} <= {"ready"}
    assert not FailedJob.objects.exists()


# Pipes


def test_each_line_arrives_when_it_is_printed(start: Start) -> None:
    """F7 of the operators: nothing sits in a buffer until the end."""
    worker = start("--sleep", "0.1")
    assert re.match(r"\S+Z INFO event=pool_started ", read_line(worker))
    read_until(worker, "event=worker_started")
    job = mark.dispatch()
    assert f"id={job.id}" in read_until(worker, "event=job_processed")
    fail.dispatch()
    assert "exception_class=ValueError" in read_until(worker, "event=job_failed")
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert re.match(
        r".* event=pool_stopped processed=1 released=0 failed=1 lost=0 ", read_until(worker, "pool_stopped")
    )
    assert worker.wait(DEADLINE) == 0
    assert worker.stderr is not None
    assert worker.stderr.read() == b""


def test_a_reader_that_goes_away_stops_it_after_its_job(start: Start, marks: Marks) -> None:
    """F26 b: as in ``queue_work | head -1``."""
    worker = start("--sleep", "0.1")
    read_until(worker, "event=worker_started")
    hold.dispatch()
    wait_until(lambda: marks.count("started") == 1, "the job runs")
    assert worker.stdout is not None
    worker.stdout.close()
    marks.let_go()
    assert worker.wait(DEADLINE) == 0
    assert worker.stderr is not None
    assert worker.stderr.read() == b""
    assert marks.count("ran") == 1
    assert state() == []


def test_a_worker_that_is_asked_to_start_afresh_ends_well(processes: Processes) -> None:
    """So that what keeps it running starts another; that one does not heed what was asked before."""
    (worker,) = processes.workers(1)
    assert processes.run("queue_restart", "--wait", "60").output.endswith("status=ended workers=1\n")
    assert worker.wait() == 0
    (another,) = processes.workers(1)
    mark.dispatch()
    wait_until(lambda: not Job.objects.exists(), "the job has run")
    assert another.stop() == 0
    assert "restart" not in another.output


# Terminals


def test_what_a_person_sees(start: Start) -> None:
    """The whole of it, with an AGAIN, a FAILED, a stop by Ctrl-C."""
    done, failed = mark.dispatch(), fail.using(queue="mail").dispatch()
    ours, theirs = pty.openpty()
    worker = start("--sleep", "0.1", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    while chunk := _read(ours):
        output += chunk
        if output.count(b"\n") == 7:
            worker.send_signal(signal.SIGINT)
    os.close(ours)
    assert worker.wait(DEADLINE) == 0
    text = output.decode().replace("\r\n", "\n")
    assert re.search(r"\x1b\[[\d;]*mDONE", text), "a terminal has colours"
    title, stores, queues, pool, blank, *lines, last, end = ESCAPES.sub("", text).split("\n")
    assert re.fullmatch(
        r"django_jobqueue \d\S*   worker \S+:\d+   Ctrl-C: finish running jobs, then stop\.  Twice: stop now\.", title
    )
    assert re.fullmatch(r"  stores   default \((SQLite|PostgreSQL|MariaDB|MySQL)\)", stores)
    assert queues == "  queues   every queue"
    assert re.fullmatch(r"  pool     1 thread   max_attempts 3   \d+ jobs in \d+ modules", pool)
    assert (blank, end) == ("", "")
    clock, took = r"\d\d:\d\d:\d\d  ", r" {2,}[\d.]+ m?s  "
    done_line, failed_line = sorted(lines, key=lambda line: "FAILED" in line)
    assert re.fullmatch(rf"{clock}work\.mark {{19}} {str(done.id)[-8:]}  1/3{took}DONE", done_line)
    assert re.fullmatch(
        rf"{clock}work\.fail {{19}} {str(failed.id)[-8:]}  1/1{took}FAILED {{8}}ValueError: it always does", failed_line
    )
    assert re.fullmatch(r"stopped: 1 processed, 0 released, 1 failed, 0 lost in [\d.]+ m?s", last)


def _read(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], DEADLINE)
    assert ready, "the terminal is silent"
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's end of a terminal
        return b""


# Starting


def test_an_error_inside_a_job_module_shows_its_traceback_and_nothing_was_reserved(
    processes: Processes, tmp_path: Path
) -> None:
    broken = tmp_path / "broken_app"
    broken.mkdir()
    (broken / "__init__.py").touch()
    (broken / "jobs.py").write_text("import a_module_that_is_missing\n")
    processes.environment["PYTHONPATH"] = os.pathsep.join([processes.all_variables()["PYTHONPATH"], str(tmp_path)])
    processes.settings["INSTALLED_APPS"] = ["django.contrib.contenttypes", "django_jobqueue", "shop", "broken_app"]
    processes.settings["ROOT_URLCONF"] = ""
    mark.dispatch()
    worker = processes.run("queue_work", "--once")
    assert worker.wait() == 1
    assert "Traceback" in worker.output
    assert re.search(r'File ".*broken_app/jobs\.py", line 1', worker.output)
    assert "ModuleNotFoundError: No module named 'a_module_that_is_missing'" in worker.output
    assert state() == [("ready", 0)]


def test_a_database_that_is_not_migrated_is_one_line_with_the_cure(processes: Processes, tmp_path: Path) -> None:
    """F68."""
    processes.databases["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "empty")}
    for command in (("queue_work", "--once"), ("queue_failed",), ("queue_stats",), ("queue_retry", "all")):
        process = processes.run(*command)
        assert process.wait() == 1
        (line,) = process.output.splitlines()
        assert "run: manage.py migrate django_jobqueue" in line
    assert processes.run("migrate", "--verbosity", "0").wait() == 0
    assert processes.run("queue_work", "--once").wait() == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--once"], 0),
        (["--stop-when-empty"], 0),
        (["--max-time", "0.1"], 0),
        (["--max-jobs", "1"], 0),
        (["--workers", "0"], 2),
        (["--queue", "a,,b"], 2),
        (["--nonsense"], 2),
        (["--connection", "nonsense"], 1),
    ],
)
def test_exit_codes(processes: Processes, options: list[str], code: int) -> None:
    mark.dispatch()
    worker = processes.run("queue_work", *options)
    assert worker.wait() == code
    assert "Traceback" not in worker.output


WITHOUT_SIGNALS = """
import os, pkgutil, signal, sys
from importlib import import_module

for name in ("SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGKILL", "SIGRTMIN"):
    delattr(signal, name)
del signal.alarm, signal.setitimer, os.fork
sys.modules["fcntl"] = sys.modules["resource"] = None

import django
from django.core.management import call_command

django.setup()
import django_jobqueue

for module in pkgutil.walk_packages(django_jobqueue.__path__, "django_jobqueue."):
    if ".contrib" not in module.name:  # which needs what not everybody has installed
        import_module(module.name)
from tests.helpers.work.jobs import mark

mark.dispatch("windows")
call_command("queue_work", once=True)
"""


def test_nothing_needs_what_windows_lacks(processes: Processes, marks: Marks) -> None:
    """F87."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIGNALS],
        env=processes.all_variables(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert marks.count("ran", "windows") == 1
