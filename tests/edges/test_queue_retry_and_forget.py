"""``queue_retry`` and ``queue_forget``: what they find, what they say, how they end."""

from __future__ import annotations

import io
import sys
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from django_jobqueue.dispatching import discovery
from django_jobqueue.models import FailedJob, Job
from django_jobqueue.operations import failed_jobs
from tests.edges.commands import dead_letter, dead_letters, run

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = pytest.mark.parametrize(("command", "done"), [("queue_retry", "retried"), ("queue_forget", "forgotten")])
ABSENT = "edges.was_removed"


def test_a_retried_job_is_on_its_queue_again_with_the_same_id() -> None:
    letter = dead_letter(queue="mail")
    assert run("queue_retry", str(letter.pk)).code == 0
    job = Job.objects.get()
    assert (job.id, job.queue, job.attempts, job.state) == (letter.job_id, "mail", 0, "ready")
    assert not FailedJob.objects.exists()


def test_a_forgotten_job_is_gone() -> None:
    letter = dead_letter()
    assert run("queue_forget", str(letter.pk)).code == 0
    assert not FailedJob.objects.exists()
    assert not Job.objects.exists()


@BOTH
def test_a_job_is_named_by_number_id_or_ending(command: str, done: str) -> None:
    letters = [dead_letter(), dead_letter(), dead_letter(job_id=UUID("01a228e7-f672-747b-a7d4-8563f14f13ef"))]
    ran = run(command, str(letters[0].pk), str(letters[1].job_id), "14F-13ef")
    assert ran.code == 0
    assert [line.rpartition(" ")[2] for line in ran.lines] == [f"status={done}"] * 3
    assert not FailedJob.objects.exists()


@BOTH
def test_in_a_pipe_there_is_a_line_for_each_job(command: str, done: str) -> None:
    letter = dead_letter(queue="mail")
    assert run(command, str(letter.pk)).lines == [
        f"id={letter.job_id} number={letter.pk} job=edges.succeed queue=mail status={done}"
    ]


@BOTH
def test_for_programs_there_is_an_object_for_each_job(command: str, done: str) -> None:
    letter = dead_letter()
    assert run(command, "all", json=True).records == [
        {"id": str(letter.job_id), "number": letter.pk, "job": "edges.succeed", "queue": "default", "status": done}
    ]


@BOTH
def test_on_a_terminal_there_is_a_sentence(command: str, done: str) -> None:
    letter = dead_letter()
    ran = run(command, str(letter.pk), terminal=True)
    assert ran.lines == [f"  {letter.pk:>6}  edges.succeed  {letter.job_id}", f"1 failed job {done}."]


@BOTH
def test_a_job_named_twice_is_one_job(command: str, done: str) -> None:
    letter = dead_letter()
    ran = run(command, str(letter.pk), str(letter.job_id))
    assert (ran.code, len(ran.lines)) == (0, 1)


@BOTH
def test_unknown_references_are_named_and_the_others_done(command: str, done: str) -> None:
    letter = dead_letter()
    ran = run(command, "987654", str(letter.pk), "nonsense", "9" * 30)
    assert ran.code == 3
    assert ran.err.splitlines() == [
        "There is no failed job 987654.",
        "'nonsense' names no failed job; give its number, its UUID, or at least 6 characters from the end of that.",
        f"There is no failed job {'9' * 30}.",
    ]
    assert ran.error == f"1 failed job {done}, 3 not."
    assert not FailedJob.objects.exists()


@BOTH
def test_only_unknown_references_are_a_failure(command: str, done: str) -> None:
    letter = dead_letter()
    ran = run(command, str(letter.pk + 1))
    assert (ran.code, ran.error) == (1, f"Nothing was {done}.")
    assert FailedJob.objects.exists()


@BOTH
def test_an_ending_that_two_jobs_share_is_refused_with_both(command: str, done: str) -> None:
    numbers = [dead_letter(job_id=UUID(f"{first}1a228e7-f672-747b-a7d4-8563f14f13ef")).pk for first in "01"]
    ran = run(command, "14f13ef")
    assert ran.code == 1
    assert all(f"{number} (" in ran.err for number in numbers)
    assert FailedJob.objects.count() == 2


@BOTH
def test_all_is_every_job_of_every_page(command: str, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_jobs, "PAGE", 10)
    dead_letters(25)
    ran = run(command, "all", terminal=True)
    assert ran.lines[-1] == f"25 failed jobs {done}."
    assert len(ran.lines) == 21, "a line each for a few, then only the sum"
    assert not FailedJob.objects.exists()


@BOTH
def test_all_of_a_queue_leaves_the_others(command: str, done: str) -> None:
    dead_letters(2, queue="mail")
    other = dead_letter()
    assert run(command, "all", "--queue", "mail").code == 0
    assert FailedJob.objects.get() == other


@BOTH
def test_all_of_nothing_is_fine(command: str, done: str) -> None:
    ran = run(command, "all")
    assert (ran.code, ran.out, ran.err) == (0, "", "No failed jobs.\n")


@BOTH
@pytest.mark.parametrize("args", [("all", "3"), ("3", "--queue", "mail"), ("all", "--queue", "a,b")])
def test_what_makes_no_sense_is_a_usage_error(command: str, done: str, args: tuple[str, ...]) -> None:
    letter = dead_letter(queue="mail")
    assert run(command, *args).code == 2
    assert FailedJob.objects.get() == letter


@BOTH
def test_an_unknown_connection_is_named(command: str, done: str) -> None:
    ran = run(command, "all", connection="fast")
    assert (ran.code, "'fast'" in ran.error) == (1, True)


# Handlers that are gone


def test_a_job_without_a_handler_stays_and_is_named() -> None:
    letter = dead_letter(ABSENT)
    ran = run("queue_retry", str(letter.pk))
    assert ran.code == 1
    assert f"No handler has the name '{ABSENT}'" in ran.err
    assert ran.out.endswith("status=unknown_job\n")
    assert FailedJob.objects.get() == letter


def test_all_retries_the_others() -> None:
    """F84."""
    dead_letters(2)
    absent = dead_letter(ABSENT)
    ran = run("queue_retry", "all")
    assert (ran.code, ran.error) == (3, "2 failed jobs retried, 1 not.")
    assert ABSENT in ran.err
    assert FailedJob.objects.get() == absent
    assert Job.objects.count() == 2


def test_of_many_without_a_handler_the_names_are_counted() -> None:
    dead_letters(30, ABSENT)
    ran = run("queue_retry", "all", terminal=True)
    assert ran.code == 1
    assert f"No handler has the name '{ABSENT}': 30 failed jobs stay." in ran.err
    assert ran.out == ""


def test_a_job_without_a_handler_can_be_forgotten() -> None:
    dead_letter(ABSENT)
    assert run("queue_forget", "all").code == 0
    assert not FailedJob.objects.exists()


def test_broken_job_modules_keep_nobody_from_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise SyntaxError("in a jobs.py")

    monkeypatch.setattr(discovery, "load_handlers", broken)
    monkeypatch.setattr(failed_jobs, "load_handlers", broken)
    dead_letter()
    assert run("queue_forget", "all").code == 0


def test_somebody_else_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [dead_letter(), dead_letter()]
    find = failed_jobs.find

    def find_late(reference: str, **where: Any) -> Any:
        found = find(reference, **where)
        FailedJob.objects.filter(pk=letters[0].pk).delete()
        return found

    monkeypatch.setattr(failed_jobs, "find", find_late)
    ran = run("queue_retry", *(str(letter.pk) for letter in letters))
    assert ran.code == 3
    assert ran.err == f"The failed job {letters[0].pk} is gone: already retried, or forgotten.\n"
    assert [line.rpartition("=")[2] for line in ran.lines] == ["gone", "retried"]


# Confirmation


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions asked; each is answered with no."""
    questions: list[str] = []

    def answer(question: str = "") -> str:
        questions.append(question)
        return "n"

    stdin = io.StringIO()
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr("builtins.input", answer)
    return questions


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobqueue.management.dead_letters.MANY", 2)


@BOTH
@pytest.mark.usefixtures("few_are_many")
def test_a_person_is_asked_about_many(command: str, done: str, asked: list[str]) -> None:
    dead_letters(3)
    ran = run(command, "all", terminal=True)
    assert (ran.code, ran.error) == (1, "Nothing was done.")
    assert asked == [f"{command.removeprefix('queue_').capitalize()} 3 failed jobs? [y/N] "]
    assert FailedJob.objects.count() == 3


@BOTH
@pytest.mark.usefixtures("few_are_many")
def test_nobody_is_asked_with_no_input_in_a_pipe_or_about_few(command: str, done: str, asked: list[str]) -> None:
    for options in ({"terminal": True, "interactive": False}, {"terminal": False}):
        dead_letters(3)
        assert run(command, "all", **options).code == 0
        Job.objects.all().delete()
    dead_letters(2)
    assert run(command, "all", terminal=True).code == 0
    assert asked == []
    assert not FailedJob.objects.exists()


# The rest


@BOTH
def test_many_take_a_bounded_number_of_queries_for_a_page(command: str, done: str) -> None:
    dead_letters(300)
    with CaptureQueriesContext(connection) as few:
        run(command, "all")
    Job.objects.all().delete()
    dead_letters(600)
    with CaptureQueriesContext(connection) as many:
        run(command, "all")
    assert len(many) < 2 * len(few) + 10


@BOTH
def test_control_characters_of_rows_are_escaped(command: str, done: str) -> None:
    dead_letter("edges.\x1b[2Jsucceed", queue="ma\til")
    ran = run(command, "all")
    assert "\x1b" not in ran.out + ran.err + ran.error
    assert r"\\x1b[2J" in ran.out


@override_settings(JOBQUEUE={"TYPO": 1})
@BOTH
def test_wrong_settings_are_one_line(command: str, done: str) -> None:
    ran = run(command, "all")
    assert (ran.code, "'TYPO'" in ran.error) == (1, True)
