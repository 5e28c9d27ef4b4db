"""Whatever a row holds, a page comes out, and nothing of it is markup."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from django_jobqueue.exceptions import InvalidPayload
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.payloads import decode
from django_jobqueue.models import FailedJob, Job
from tests.edges.commands import dead_letter, dead_letters
from tests.edges.pages import JOBS, LIST, NASTY, OPERATE, history, job_page, page, person, rows, text, told, waiting_job
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = pytest.mark.django_db

DEEP = "[" * 900 + "]" * 900
PAYLOADS = {
    "empty": "",
    "cut": "{",
    "null": "null",
    "list": "[]",
    "number": "7",
    "base64": "gASVCAAAAAAAAACMBGxpc3SUhZQu",
    "args no list": '{"args":7,"kwargs":[]}',
    "unknown tag": '{"args":[{"$type":"Enum","value":1}],"kwargs":{}}',
    "tag without value": '{"args":[{"$type":"date"}],"kwargs":{}}',
    "tagged list": '{"args":[{"$type":"dict","value":[]}],"kwargs":{}}',
    "tag that is a list": '{"args":[{"$type":[],"value":[]}],"kwargs":{}}',
    "deep": f'{{"args":[{DEEP}],"kwargs":{{}}}}',
    "too deep": "[" * 200_000,
    "deep tag": f'{{"args":[{{"$type":"tuple","value":{DEEP}}}],"kwargs":{{}}}}',
    "not finite": '{"args":[NaN,Infinity],"kwargs":{}}',
    "many digits": f'{{"args":[{"9" * 5000}],"kwargs":{{}}}}',
    "many keys": json.dumps({"args": [], "kwargs": {f"key_{number}": "v" * 100 for number in range(20_000)}}),
    "huge": json.dumps({"args": ["x" * 5_000_000], "kwargs": {}}),
    "huge list": json.dumps({"args": [list(range(300_000))], "kwargs": {}}),
    "odd characters": '{"args":["\\u202etxt.exe\\u0000\\u001b[31m\\ud800"],"kwargs":{"\\u202e":1}}',
}
ERRORS = {
    "empty": "",
    "cut": "{",
    "list": "[]",
    "deep": "[" * 200_000,
    "endless total": '{"total": Infinity, "last": []}',
    "wrong types": json.dumps(
        {
            "total": 3,
            "last": [
                {
                    "number": {"a": 1},
                    "worker": None,
                    "started": 7,
                    "waited": "long",
                    "ran": [],
                    "exception_class": None,
                    "message": 5,
                    "traceback": {"a": []},
                }
            ],
        }
    ),
    "long texts": history(count=20, message="m" * 100_000, traceback="t" * 300_000, worker="w" * 5_000),
    "no moment": history(started="yesterday"),
    "naive moment": history(started="2026-07-01T12:00:00"),
    "ends of time": history(started="0001-01-01T00:00:00+14:00"),
}
MOMENTS = {"begin": datetime.min.replace(tzinfo=UTC), "end": datetime.max.replace(tzinfo=UTC)}


@pytest.fixture
def operator() -> Client:
    return person(*OPERATE)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_any_payload(operator: Client, payload: str) -> None:
    letter, job = dead_letter(payload=payload, metadata=payload), waiting_job(payload=payload, metadata=payload)
    assert rows(operator.get(LIST)) == [letter.pk]
    text(operator.get(JOBS))
    for where in (page(letter), job_page(job)):
        shown = text(operator.get(where))
        assert len(shown) < 600_000
        assert "\u202e" not in shown
    readable = _is_readable(payload)
    answer = operator.post(page(letter, "retry"), follow=True)
    assert FailedJob.objects.exists() is not readable
    if not readable:
        assert told(answer) == [
            f"#{letter.pk}: not retried, since the payload cannot be read, so it would only fail again."
        ]
        operator.post(page(letter, "forget"))
        assert not FailedJob.objects.exists()


def _is_readable(payload: str) -> bool:
    try:
        decode(payload, 1)
    except InvalidPayload:
        return False
    return True


@pytest.mark.parametrize("errors", ERRORS.values(), ids=ERRORS)
def test_any_history(operator: Client, errors: str) -> None:
    letter, job = dead_letter(errors=errors), waiting_job(errors=errors)
    assert len(text(operator.get(LIST))) < 300_000
    for where in (page(letter), job_page(job)):
        assert len(text(operator.get(where))) < 600_000


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_any_moment(operator: Client, moment: datetime) -> None:
    letter = dead_letter(created_at=moment, failed_at=moment)
    job = waiting_job(
        state="reserved",
        created_at=moment,
        available_at=moment,
        ready_at=moment,
        retry_until=moment,
        reserved_until=moment,
    )
    for where in (LIST, JOBS, page(letter), job_page(job)):
        text(operator.get(where))


@pytest.mark.parametrize("state", ["", "done", "scheduled", "ready", "reserved", "blocked"])
def test_any_state(operator: Client, state: str) -> None:
    job = waiting_job(state=state, attempts=2**31 - 1, worker="", reserved_until=None)
    text(operator.get(JOBS))
    text(operator.get(job_page(job)))


def test_a_newer_format(operator: Client) -> None:
    letter = dead_letter(format=999)
    assert "format 999" in text(operator.get(page(letter)))


@pytest.mark.parametrize("key", ["0", "-1", str(2**70), "x", "1_2", "%00", "1/2"])
def test_any_address(operator: Client, key: str) -> None:
    dead_letter()
    for act in ("change", "retry", "forget", "history"):
        assert operator.get(f"{LIST}{key}/{act}/", follow=True).status_code in {200, 404}
        if act in {"retry", "forget"}:
            assert operator.post(f"{LIST}{key}/{act}/", follow=True).status_code == 200
    assert FailedJob.objects.count() == 1


@pytest.mark.parametrize("query", ["p=99", "p=x", "o=99.x", "q=%00", "all=1", "e=1", "_popup=1", "_to_field=id"])
def test_any_list_address(operator: Client, query: str) -> None:
    dead_letter()
    assert operator.get(f"{LIST}?{query}", follow=True).status_code == 200


def test_nothing_of_a_row_is_markup(operator: Client) -> None:
    """F61"""
    changes: dict[str, Any] = {
        "queue": NASTY,
        "payload": json.dumps({"args": [NASTY], "kwargs": {NASTY: {NASTY: [NASTY]}}}),
        "metadata": json.dumps({NASTY: NASTY}),
        "errors": history(
            exception_class=NASTY, message=NASTY, traceback=NASTY, worker=NASTY, started=NASTY, number=NASTY, ran=NASTY
        ),
    }
    letters = [dead_letter(NASTY, exception_class=NASTY, exception_message=NASTY, connection=NASTY, **changes)]
    letters.append(dead_letter(NASTY, payload=NASTY, metadata=NASTY, masked=NASTY, errors=NASTY, format=1))
    job = waiting_job(NASTY, worker=NASTY, state="<b>", **changes)
    pages = [LIST, JOBS, job_page(job), f"{LIST}?name={NASTY}&queue={NASTY}&error={NASTY}", f"{JOBS}?queue={NASTY}"]
    pages += [f"{LIST}?q={NASTY}"]
    pages += [page(letter, act) for letter in letters for act in ("change", "retry", "forget", "history")]
    answers = [text(operator.get(where)) for where in pages]
    answers += [text(operator.post(page(letter, "retry"), follow=True)) for letter in letters]
    answers += [
        text(operator.post(LIST, {"action": "retry_selected", "_selected_action": [letter.pk]}, follow=True))
        for letter in letters
    ]
    answers += [text(operator.post(page(letters[1], "forget"), follow=True))]
    answers += [text(operator.get("/admin/"))]
    for shown in answers:
        assert "<script>alert" not in shown
        assert "<img src=x" not in shown
        assert "<b>" not in shown
        assert "javascript:" not in shown


def test_no_page_has_style_or_script_in_it(operator: Client) -> None:
    letter, job = dead_letter(errors=history()), waiting_job(available_at=datetime(2020, 1, 1, tzinfo=UTC))
    dead_letters(60)
    for where in (LIST, JOBS, page(letter), page(letter, "retry"), page(letter, "forget"), job_page(job)):
        shown = text(operator.get(where))
        assert "<style" not in shown
        assert not re.search(r"\sstyle=", shown), where
        assert not re.search(r"<script(?![^>]*\ssrc=)", shown), where
        assert not re.search(r"<[^>]*\son[a-z]+=", shown), where
        assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", shown), where
        assert "django_jobqueue/admin.css" in shown


def test_huge_error_texts(operator: Client) -> None:
    """A row as the driver stores it, after an exception of ten million characters, fifty times."""
    from django_jobqueue.jobs.errors import message_of, traceback_of

    error = ValueError("x" * 10_000_000)
    message, trace = message_of(error), traceback_of(error)
    errors = history(count=20, message=message, traceback=trace)
    for _number in range(50):
        dead_letter(exception_message=message, errors=errors)
    assert len(text(operator.get(LIST))) < 300_000
    assert len(text(operator.get(page(FailedJob.objects.earliest("pk"))))) < 600_000
    assert rows(operator.get(f"{LIST}?q=xxx")) == []


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**33])
def test_large_numbers(operator: Client, number: int) -> None:
    letter = dead_letter(pk=number, attempts=2**31 - 1, retries=7)
    assert rows(operator.get(f"{LIST}?q={number}")) == [number]
    assert f"#{number}" in text(operator.get(page(letter)))
    operator.post(page(letter, "retry"))
    assert Job.objects.filter(pk=letter.job_id).exists()
    letter = dead_letter(pk=number, job_id=new_job_id())
    operator.post(LIST, {"action": "forget_selected", "_selected_action": [number]})
    assert not FailedJob.objects.exists()


def test_removed_jobs_are_forgotten_and_not_retried(operator: Client) -> None:
    letter = dead_letter("shop.removed")
    answer = operator.post(page(letter, "retry"), follow=True)
    assert told(answer) == [
        f"#{letter.pk}: not retried, since no handler has this name. Restore the handler, or forget the job."
    ]
    assert FailedJob.objects.exists()
    operator.post(page(letter, "forget"))
    assert not FailedJob.objects.exists()
