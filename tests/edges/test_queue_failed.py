"""``queue_failed``: the list of dead letters."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import BytesIO, TextIOWrapper

import pytest
from django.core.management import call_command

from tests.edges.commands import dead_letter, dead_letters, run

pytestmark = pytest.mark.django_db(transaction=True)

MOMENT = datetime(2026, 11, 29, 12, 4, 32, 120_000, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_in_a_pipe_it_is_tab_separated_with_a_header() -> None:
    letter = dead_letter(exception_class="shop.errors.Refused", exception_message="no\tmoney\n", failed_at=MOMENT)
    assert run("queue_failed").lines == [
        "failed_at\tjob\tnumber\tid\tqueue\tattempts\terror",
        f"2026-11-29T12:04:32.120Z\tedges.succeed\t{letter.pk}\t{letter.job_id}\tdefault\t3/3\tRefused: no money",
    ]


def test_for_programs_it_has_an_object_for_each_job() -> None:
    letter = dead_letter(failed_at=MOMENT, max_attempts=None, retries=2)
    assert run("queue_failed", json=True).records == [
        {
            "number": letter.pk,
            "id": str(letter.job_id),
            "job": "edges.succeed",
            "queue": "default",
            "connection": "default",
            "attempts": 3,
            "max_attempts": None,
            "exception_class": "builtins.ValueError",
            "exception_message": "broken",
            "retries": 2,
            "failed_at": "2026-11-29T12:04:32.120Z",
        }
    ]


def test_on_a_terminal_it_is_a_table_the_newest_first() -> None:
    now = datetime.now(UTC)
    older = dead_letter("edges.older", failed_at=now - timedelta(hours=5), queue="mail", attempts=1, max_attempts=1)
    newer = dead_letter("edges.newer", failed_at=now - timedelta(minutes=4), exception_message="")
    titles, first, second, footer = run("queue_failed", terminal=True, no_color=True).lines
    assert titles.split() == ["FAILED", "JOB", "NUMBER", "ID", "QUEUE", "ATTEMPTS", "ERROR"]
    assert re.split("  +", first) == [
        "4 min ago",
        "edges.newer",
        str(newer.pk),
        str(newer.job_id)[-8:],
        "default",
        "3/3",
        "ValueError",
    ]
    assert re.split("  +", second)[0] == "5 h ago"
    assert second.endswith("1/1       ValueError: broken")
    assert [line.index("edges") for line in (first, second)] == [titles.index("JOB")] * 2
    assert footer == f"2 failed jobs.  Retry: manage.py queue_retry {newer.pk}"
    assert older.pk < newer.pk


def test_it_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    dead_letter(exception_message="very " * 90)
    ran = run("queue_failed", terminal=True, no_color=True)
    assert max(map(len, ran.lines)) == 90
    assert ran.lines[1].endswith("…")


def test_it_shows_some_of_many() -> None:
    dead_letters(60)
    assert len(run("queue_failed").lines) == 51
    assert len(run("queue_failed", "--limit", "7").lines) == 8
    assert "60 failed jobs, 50 shown." in run("queue_failed", terminal=True).out


def test_it_shows_one_queue() -> None:
    dead_letters(2)
    mail = dead_letter(queue="mail")
    assert [record["number"] for record in run("queue_failed", "--json", "--queue", "mail").records] == [mail.pk]
    assert len(run("queue_failed", "--json", "-q", "*").records) == 3


def test_without_failed_jobs_it_says_so() -> None:
    assert run("queue_failed", terminal=True).out == "No failed jobs.\n"
    assert run("queue_failed", json=True).out == ""
    assert len(run("queue_failed").lines) == 1


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": -1}, {"queue": "a,b"}, {"queue": ""}])
def test_what_makes_no_sense_is_a_usage_error(options: dict[str, object]) -> None:
    assert run("queue_failed", **options).code == 2


def test_colours_are_for_terminals_unless_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    dead_letter()
    assert "\x1b[" in run("queue_failed", terminal=True, force_color=True).out
    assert "\x1b[" not in run("queue_failed", terminal=True, no_color=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("queue_failed", terminal=True).out
    assert "\x1b[" in run("queue_failed", force_color=True).out


def test_control_characters_of_rows_are_escaped() -> None:
    dead_letter("edges.\x1bname", queue="q\x07", exception_message="a\x1b]0;title\x07\u202eb")
    for options in ({}, {"terminal": True, "no_color": True}, {"json": True}):
        out = run("queue_failed", **options).out
        assert all(char.isprintable() or char in "\t\n" for char in out), out
        assert r"\x1b]0;title\x07\u202eb" in out or r"\u001b]0;title\u0007\u202eb" in out


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    """As on a terminal, or in a container, whose encoding is ASCII."""
    dead_letter(queue="почта", exception_message="→")
    stdout = TextIOWrapper(BytesIO(), encoding="ascii")
    call_command("queue_failed", stdout=stdout)
    stdout.seek(0)
    assert r"\u043f\u043e\u0447\u0442\u0430" in stdout.read()
