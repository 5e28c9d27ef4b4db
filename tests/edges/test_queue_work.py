"""``queue_work`` in this process: what it refuses, runs, prints and leaves behind."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Error, Warning
from django.core.management import call_command
from django.db import connections as databases
from django.db import transaction

from django_jobqueue import dispatch, using
from django_jobqueue.drivers import connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from django_jobqueue.management.commands import queue_work
from django_jobqueue.models import FailedJob, Job
from django_jobqueue.running import notes
from django_jobqueue.running.options import WorkerOptions
from tests.edges.commands import Terminal, fail, leave, run, succeed
from tests.helpers.redis import entry, wipe
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LOGGER = logging.getLogger("django_jobqueue")
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?P<level>[A-Z]+) event=(?P<event>\w+) ")


def work(**options: Any) -> Any:
    return run("queue_work", **{"stop_when_empty": True, "sleep": 0.05, **options})


def events(out: str) -> list[str]:
    return [match["event"] for line in out.splitlines() if (match := STAMP.match(line))]


def left() -> dict[str, int]:
    return dict(Counter(Job.objects.values_list("state", flat=True)))


# What it runs


def test_it_runs_what_is_there_and_stops() -> None:
    for _ in range(3):
        dispatch(succeed)
    dispatch(fail)
    assert work().code == 0
    assert left() == {}
    assert FailedJob.objects.get().attempts == 2


def test_once_is_one_attempt() -> None:
    dispatch(fail)
    dispatch(fail)
    ran = run("queue_work", "--once", "--workers", "4")
    assert ran.code == 0
    assert sorted(Job.objects.values_list("attempts", flat=True)) == [0, 1]
    assert "released=1 failed=0 lost=0" in ran.lines[-1]


def test_once_ends_when_nothing_is_there() -> None:
    using("edges.succeed", delay=60).dispatch()
    assert run("queue_work", "--once").code == 0
    assert left() == {"scheduled": 1}


@pytest.mark.parametrize("workers", [1, 3])
def test_max_jobs_counts_the_attempts_of_the_whole_process(workers: int) -> None:
    for _ in range(8):
        dispatch(fail)
    assert run("queue_work", workers=workers, max_jobs=5, sleep=0.05).code == 0
    assert sum(Job.objects.values_list("attempts", flat=True)) + 2 * FailedJob.objects.count() == 5
    assert "reserved" not in left()


def test_max_time_is_a_limit() -> None:
    assert run("queue_work", "--max-time", "0.05", "--sleep", "0.01").code == 0


def test_zero_as_a_limit_is_no_limit() -> None:
    for _ in range(3):
        dispatch(succeed)
    assert work(max_jobs=0, max_time=0).code == 0
    assert left() == {}


def test_it_serves_the_queues_that_are_named_in_their_order() -> None:
    for queue in ("low", "other", "high"):
        using("edges.succeed", queue=queue).dispatch()
    ran = run("queue_work", "--queue", "high,low", "--stop-when-empty", "--json")
    assert [record["queue"] for record in ran.records if record["event"] == "job_processed"] == ["high", "low"]
    assert Job.objects.get().queue == "other"


def test_limits_of_the_command_are_for_jobs_that_set_none() -> None:
    connections["default"].push(
        [
            NewJob(id=new_job_id(), name="edges.absent", queue="default", payload="", format=1, max_attempts=limit)
            for limit in (None, 3)
        ]
    )
    assert work(max_attempts=1, backoff=60).code == 0
    assert FailedJob.objects.get().attempts == 1
    job = Job.objects.get()
    assert (job.attempts, job.state) == (1, "scheduled")
    assert 50 < (job.available_at - job.created_at).total_seconds() < 70


def test_tries_is_another_word_for_max_attempts() -> None:
    connections["default"].push([NewJob(id=new_job_id(), name="edges.absent", queue="q", payload="", format=1)])
    run("queue_work", "--stop-when-empty", "--tries", "1")
    assert FailedJob.objects.get().attempts == 1


def test_what_ends_a_program_ends_only_the_job() -> None:
    """F25."""
    dispatch(leave)
    dispatch(succeed)
    ran = work()
    assert ran.code == 0
    assert FailedJob.objects.get().exception_class == "SystemExit"
    assert "processed=1 released=0 failed=1 lost=0" in ran.lines[-1]


def test_a_job_of_an_unknown_name_is_kept_and_runs_when_the_name_is_known(register: Callable[..., Any]) -> None:
    """F83."""
    ran_with = []
    payload = '{"args":[1],"kwargs":{}}'
    connections["default"].push(
        [NewJob(id=new_job_id(), name="tests.old_name", queue="default", payload=payload, format=1, max_attempts=1)]
    )
    work()
    letter = FailedJob.objects.get()
    assert letter.payload == payload
    assert "tests.old_name" in letter.exception_message

    @register(name="tests.old_name")
    def renamed(number: int) -> None:
        ran_with.append(number)

    assert run("queue_retry", "all").code == 0
    work()
    assert ran_with == [1]
    assert left() == {}


def test_it_runs_inside_a_transaction_of_the_caller() -> None:
    """F89: as in a TestCase."""
    with transaction.atomic():
        dispatch(succeed)
        assert run("queue_work", "--once").code == 0
        assert left() == {}
        transaction.set_rollback(True)


# What it refuses


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("workers", "0"),
        ("workers", "-1"),
        ("workers", "two"),
        ("workers", True),
        ("max_jobs", "-1"),
        ("max_jobs", "1.5"),
        ("max_time", "-1"),
        ("max_time", "nan"),
        ("sleep", "0"),
        ("sleep", "inf"),
        ("sleep", "soon"),
        ("grace", "-0.1"),
        ("grace", "1e12"),
        ("max_attempts", "0"),
        ("backoff", "10,,20"),
        ("backoff", "-1"),
        ("backoff", "nan"),
        ("queue", "a,,b"),
        ("queue", ["a", "*"]),
        ("queue", ""),
        ("queue", "q" * 101),
        ("name", ""),
        ("name", "web\n1"),
        ("name", "w" * 81),
        ("health_file", "/"),
        ("health_file", "/absent/folder/health"),
    ],
)
def test_a_value_that_cannot_work_is_a_usage_error_that_names_it(option: str, value: Any) -> None:
    ran = run("queue_work", once=True, **{option: value})
    assert ran.code == 2
    assert f"--{option.replace('_', '-')}" in ran.error or option in ran.error
    assert ran.out == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10", 10.0),
        (10, 10.0),
        ("10,60.5", (10.0, 60.5)),
        ([1, 2], (1.0, 2.0)),
        ("0", 0.0),
    ],
)
def test_backoff_is_a_number_or_several(given: Any, expected: Any) -> None:
    options = dict.fromkeys(
        ("queue", "connection", "workers", "max_jobs", "max_time", "memory", "sleep", "grace", "max_attempts", "name")
    )
    parsed = queue_work.worker_options({**options, "once": False, "stop_when_empty": False, "backoff": given})
    assert parsed.backoff == expected
    assert (parsed.workers, parsed.grace, parsed.queues, parsed.max_jobs) == (1, 30, ("*",), None)


@pytest.mark.parametrize(
    "options", [{"noreload": True}, {"once": True}, {"stop_when_empty": True}, {"max_jobs": 5}, {"memory": 100}]
)
def test_reloading_contradicts_what_comes_to_an_end(options: dict[str, Any]) -> None:
    ran = run("queue_work", reload=True, **options)
    assert ran.code == 2
    assert "--reload" in ran.error


def test_reloading_is_for_the_command_line() -> None:
    ran = run("queue_work", reload=True)
    assert ran.code == 1
    assert "command line only" in ran.error


@pytest.mark.parametrize(
    ("debug", "terminal", "given", "expected"),
    [
        (True, True, {}, True),
        (False, True, {}, False),
        (True, False, {}, False),
        (True, True, {"noreload": True}, False),
        (True, True, {"once": True}, False),
        (True, True, {"noreload": True, "once": True}, False),
        (True, True, {"supervised": "notes"}, False),
        (False, False, {"reload": True}, True),
    ],
)
def test_on_a_terminal_in_development_it_reloads(
    settings: Any, debug: bool, terminal: bool, given: dict[str, Any], expected: bool
) -> None:
    settings.DEBUG = debug
    command = queue_work.Command(stdout=Terminal() if terminal else StringIO())
    command.owns_process = True
    nothing = dict.fromkeys(("once", "reload", "noreload", "supervised"))
    assert command.reloads({**nothing, **given}, WorkerOptions()) is expected


@pytest.mark.parametrize("options", [{"stop_when_empty": True}, {"max_jobs": 1}, {"max_time": 60}, {"memory": 9}])
def test_what_comes_to_an_end_is_not_started_again(settings: Any, options: dict[str, Any]) -> None:
    settings.DEBUG = True
    command = queue_work.Command(stdout=Terminal())
    command.owns_process = True
    nothing = dict.fromkeys(("once", "reload", "noreload", "supervised"))
    assert command.reloads(nothing, WorkerOptions(**options)) is False


def test_under_a_supervisor_of_another_release_it_does_nothing_but_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as release:
        release.setattr(notes, "__version__", "0.0.1")
        made = notes.Notes.create(tmp_path / "notes", 1)
    dispatch(succeed)
    ran = run("queue_work", supervised=str(tmp_path / "notes"))
    assert (ran.code, ran.out) == (0, "")
    assert made.found_another_release
    assert left() == {"ready": 1}


def test_a_name_stands_for_the_host() -> None:
    dispatch(leave)
    records = {record["event"]: record for record in work(json=True, name="mailer").records}
    assert records["pool_started"]["worker"] == f"mailer:{os.getpid()}"
    assert records["worker_started"]["worker"].startswith(f"mailer:{os.getpid()}:")
    assert '"worker":"mailer:' in FailedJob.objects.get().errors.replace(" ", "")


def test_a_health_file_is_there_while_it_works_and_gone_at_the_end(tmp_path: Path, register: Any) -> None:
    file = tmp_path / "health"

    @register(name="tests.look_for_health")
    def look_for_health() -> None:
        wait_until(file.exists, "a heartbeat was stored, and the loop is at a job")

    look_for_health.dispatch()
    assert work(health_file=str(file)).code == 0
    assert FailedJob.objects.count() == 0
    assert not file.exists()


def test_wrong_settings_are_one_line(settings: Any) -> None:
    settings.JOBQUEUE = {"TYPO": 1}
    ran = run("queue_work", "--once")
    assert (ran.code, ran.out) == (1, "")
    assert "'TYPO'" in ran.error
    assert "\n" not in ran.error


def test_an_unknown_connection_is_named_with_those_that_exist() -> None:
    ran = run("queue_work", "--once", "--connection", "fast")
    assert (ran.code, ran.error) == (
        1,
        "There is no queue connection 'fast'; JOBQUEUE[\"CONNECTIONS\"] has default.",
    )


@pytest.mark.parametrize("options", [{}, {"connection": "default"}])
def test_jobs_in_memory_are_refused_with_the_cure(settings: Any, options: dict[str, str]) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    ran = run("queue_work", once=True, **options)
    assert ran.code == 1
    assert "memory of one process" in ran.error


def test_problems_of_the_stores_are_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "problems", lambda self: ["no tables: migrate", "no disk: buy"])
    dispatch(succeed)
    ran = run("queue_work", "--once")
    assert (ran.code, ran.out, ran.error) == (1, "", "no tables: migrate\nno disk: buy")
    assert left() == {"ready": 1}


def test_an_error_inside_a_job_module_is_raised_before_anything_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("in a jobs.py")

    monkeypatch.setattr(queue_work, "load_handlers", broken)
    dispatch(succeed)
    with pytest.raises(ZeroDivisionError, match=r"jobs\.py"):
        run("queue_work", "--once")
    assert Job.objects.get().attempts == 0


def test_system_checks_are_made_with_the_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*, databases: list[str] | None, **kwargs: Any) -> list[Any]:
        return [Warning("slow disk", id="tests.W1")] if databases == ["default"] else []

    monkeypatch.setattr("django.core.checks.registry.registry.registered_checks", {_tagged(check)})
    ran = run("queue_work", "--once", skip_checks=False)
    assert ran.code == 0
    assert "slow disk" in ran.err


def test_an_error_of_a_system_check_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django.core.checks.registry.registry.registered_checks",
        {_tagged(lambda **kwargs: [Error("no disk", id="tests.E1")])},
    )
    ran = run("queue_work", "--once", skip_checks=False)
    assert ran.code == 1
    assert "no disk" in ran.error


def _tagged(check: Any) -> Any:
    check.tags = ("tests",)
    return check


# What it prints


def test_in_a_pipe_there_are_key_value_lines() -> None:
    job = using("edges.succeed", queue="mail").dispatch()
    dispatch(fail, "no\nmoney")
    ran = work()
    assert all(STAMP.match(line) for line in ran.lines), ran.out
    assert events(ran.out)[:2] == ["pool_started", "worker_started"]
    assert events(ran.out)[-3:] == ["worker_stopping", "worker_stopped", "pool_stopped"]
    assert sorted(events(ran.out)[2:-3]) == ["job_failed", "job_failed", "job_processed"]
    (line,) = (line for line in ran.lines if "event=job_processed" in line)
    assert re.search(
        rf" INFO event=job_processed job=edges.succeed id={job.id} queue=mail connection=default "
        r"attempt=1 max_attempts=3 waited=[\d.e-]+ elapsed=[\d.e-]+$",
        line,
    )
    again, dead = (line for line in ran.lines if "event=job_failed" in line)
    assert " WARNING " in again
    assert again.endswith(' delay=0 exception_class=ValueError exception_message="no money" dead_lettered=false')
    assert " ERROR " in dead
    assert dead.endswith(' exception_class=ValueError exception_message="no money" dead_lettered=true')


def test_for_programs_there_are_objects_with_the_names_of_the_signals() -> None:
    job = dispatch(fail)
    records = {record["event"]: record for record in work(json=True).records}
    failed = records["job_failed"]
    assert failed.pop("ts").endswith("Z")
    assert failed.pop("waited") >= 0
    assert failed.pop("elapsed") >= 0
    assert failed == {
        "level": "error",
        "event": "job_failed",
        "job": "edges.fail",
        "id": str(job.id),
        "queue": "default",
        "connection": "default",
        "attempt": 2,
        "max_attempts": 2,
        "delay": None,
        "exception_class": "ValueError",
        "exception_message": "it always does",
        "dead_lettered": True,
    }
    assert records["pool_stopped"].items() >= {"processed": 0, "released": 1, "failed": 1, "lost": 0}.items()


def test_on_a_terminal_there_are_columns() -> None:
    done = dispatch(succeed)
    failed = dispatch(fail)
    ran = work(terminal=True, no_color=True)
    title, stores, queues, pool, blank, *lines, last = ran.lines
    assert re.fullmatch(r"django_jobqueue \S+   worker \S+:\d+   Ctrl-C: .+  Twice: stop now\.", title)
    assert stores.startswith("  stores   default (")
    assert queues == "  queues   every queue"
    assert re.fullmatch(r"  pool     1 thread   max_attempts 3   \d+ jobs in \d+ modules?", pool)
    assert blank == ""
    shown = sorted(re.sub(r"^\d\d:\d\d:\d\d  (.* \d/\d) +[\d.]+ m?s  ", r"CLOCK  \1 TIME  ", line) for line in lines)
    name = "CLOCK  edges.fail                  "
    assert shown == [
        f"{name} {str(failed.id)[-8:]}  1/2 TIME  AGAIN in 0 s  ValueError: it always does",
        f"{name} {str(failed.id)[-8:]}  2/2 TIME  FAILED        ValueError: it always does",
        f"{name.replace('fail   ', 'succeed')} {str(done.id)[-8:]}  1/3 TIME  DONE",
    ]
    assert re.fullmatch(r"stopped: 1 processed, 1 released, 1 failed, 0 lost in [\d.]+ m?s", last)


def test_quiet_it_prints_only_errors() -> None:
    dispatch(succeed)
    assert work(verbosity=0).out == ""
    dispatch(fail)
    assert events(work(verbosity=0).out) == ["job_failed"]


def test_verbose_it_prints_starts_and_tracebacks() -> None:
    dispatch(fail)
    assert events(work(verbosity=2).out).count("job_starting") == 2
    dispatch(fail)
    ran = work(verbosity=2, terminal=True, no_color=True)
    assert "RUNNING" in ran.out
    assert "    ValueError: it always does" in ran.lines
    dispatch(fail)
    (dead,) = (record for record in work(verbosity=2, json=True).records if record.get("dead_lettered"))
    assert dead["traceback"].startswith("Traceback")


def test_control_characters_of_rows_are_escaped() -> None:
    bell = "q\x07\x1b[2J"
    row = NewJob(id=new_job_id(), name=f"n{bell}", queue=bell, payload="", format=1, max_attempts=1)
    for options in ({}, {"terminal": True, "no_color": True}, {"json": True}):
        connections["default"].push([row])
        ran = work(**options)
        FailedJob.objects.all().delete()
        assert "failed=1" in ran.out or "1 failed" in ran.out or '"failed": 1' in ran.out
        assert all(char.isprintable() or char == "\n" for char in ran.out), ran.out


class Broken(StringIO):
    """A stdout that fails from some line on."""

    def __init__(self, error: OSError, lines: int = 0) -> None:
        super().__init__()
        self.error = error
        self.lines = lines

    def write(self, text: str) -> int:
        self.lines -= 1
        if self.lines < 0:
            raise self.error
        return super().write(text)


def test_a_reader_that_has_gone_stops_the_worker_after_its_job() -> None:
    for _ in range(30):
        dispatch(succeed)
    # The banner and the start are read; the line of the first job is not.
    call_command("queue_work", stdout=Broken(BrokenPipeError(), lines=2), sleep=0.05, max_time=30)
    assert set(left()) == {"ready"}
    assert set(Job.objects.values_list("attempts", flat=True)) == {0}


def test_a_full_disk_disturbs_no_job() -> None:
    for _ in range(3):
        dispatch(succeed)
    call_command("queue_work", stdout=Broken(OSError(errno.ENOSPC, "full")), stop_when_empty=True)
    assert left() == {}


# Logging of the project


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    before = LOGGER.level, LOGGER.propagate, LOGGER.disabled, list(LOGGER.handlers)
    yield LOGGER
    level, LOGGER.propagate, LOGGER.disabled, LOGGER.handlers = before
    LOGGER.setLevel(level)


def test_a_project_that_logs_gets_its_own_format_and_no_doubles(logger: logging.Logger) -> None:
    stream = StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    logger.setLevel(logging.INFO)
    dispatch(succeed)
    ran = work()
    assert events(ran.out) == ["pool_started", "pool_stopped"]
    assert "edges.succeed" in stream.getvalue()


def test_with_json_the_lines_are_printed_whatever_the_project_logs(logger: logging.Logger) -> None:
    stream = StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    logger.setLevel(logging.INFO)
    dispatch(succeed)
    assert "job_processed" in [record["event"] for record in work(json=True).records]
    assert "edges.succeed" in stream.getvalue()


def test_a_console_of_the_root_logger_is_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    console = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.getLogger(), "handlers", [*logging.getLogger().handlers, console])
    dispatch(fail)
    assert events(work().out) == ["pool_started", "pool_stopped"]


def test_other_handlers_of_the_root_logger_see_what_they_saw_before(caplog: pytest.LogCaptureFixture) -> None:
    dispatch(succeed)
    dispatch(fail)
    ran = work()
    assert "event=job_processed" in ran.out
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_logger_that_dictconfig_has_disabled_prints_anyway(logger: logging.Logger) -> None:
    """As when settings.py imports from the package, and LOGGING does not say otherwise."""
    logger.disabled = True
    dispatch(succeed)
    assert "event=job_processed" in work().out
    assert logger.disabled


def test_it_says_which_timeouts_cannot_be_enforced() -> None:
    assert "Without --processes no timeout ends a job that waits without an end" in work(workers=2).err
    assert work(workers=1).err == ""
    assert work(workers=2, verbosity=0).err == ""


# What it leaves behind


def surroundings() -> Any:
    handlers = {name: signal.getsignal(name) for name in signal.Signals}
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("jobqueue")}
    return handlers, threads, LOGGER.handlers[:], LOGGER.level, LOGGER.propagate, LOGGER.disabled


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_left_behind(workers: int) -> None:
    """F90."""
    before = surroundings()
    for _ in range(3):
        dispatch(fail)
        assert run("queue_work", "--once").code == 0
        assert work(workers=workers).code == 0
    assert surroundings() == before


@pytest.mark.redis
def test_nothing_is_left_behind_where_the_queues_are_on_redis(settings: Any) -> None:
    """F90: no thread that listens, either."""
    pytest.importorskip("django_redis", reason="django-redis is not installed")
    settings.JOBQUEUE = {"CONNECTIONS": {"default": entry()}}
    driver = connections["default"]
    try:
        before = surroundings()
        for _ in range(3):
            dispatch(succeed)
            assert run("queue_work", "--once").code == 0
            assert work(workers=2).code == 0
        assert driver.queues() == []
        assert surroundings() == before
    finally:
        wipe(driver)


def test_it_works_from_a_thread_which_has_no_signal_handlers() -> None:
    """F90."""
    dispatch(succeed)
    before = surroundings()
    codes: list[int] = []

    def thread() -> None:
        codes.append(run("queue_work", "--once").code)
        databases.close_all()

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join(30)
    assert codes == [0]
    assert left() == {}
    assert surroundings() == before


def test_what_it_prints_for_programs_is_json_lines() -> None:
    for line in work(json=True).lines:
        assert isinstance(json.loads(line), dict)
