"""The list of jobs and the page of one: to look at, not to change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from django_jobqueue.models import Job
from tests.edges.pages import JOBS, MOST_QUERIES, VIEW, history, job_page, person, text, waiting_job
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = pytest.mark.django_db

LATE = ">▲ late</span>"


@pytest.fixture
def viewer() -> Client:
    return person(*VIEW, "view_payload_job")


def ids(response: Any) -> set[Any]:
    return {job.pk for job in response.context["cl"].result_list}


def ago(**duration: float) -> datetime:
    return datetime.now(UTC) - timedelta(**duration)


def test_the_list(viewer: Client) -> None:
    job = waiting_job("shop.jobs.mail.send", rank=-7, attempts=1, max_attempts=4, worker="web1:7:ab", state="reserved")
    shown = text(viewer.get(JOBS))
    for part in (f'title="shop.jobs.mail.send {job.pk}"', str(job.pk)[-8:], "reserved", ">7<", "1/4", "web1:7:ab"):
        assert part in shown, part
    assert "action-select" not in shown


@pytest.mark.parametrize(
    ("state", "ready", "available", "is_late"),
    [
        ("ready", 90, 90, True),
        ("ready", 20, 86_400, False),
        ("scheduled", 90, 90, True),
        ("scheduled", -90, -90, False),
        ("reserved", 86_400, 86_400, False),
        ("blocked", 86_400, 86_400, False),
    ],
)
def test_late_is_said_by_a_word(viewer: Client, state: str, ready: float, available: float, is_late: bool) -> None:
    job = waiting_job(state=state, ready_at=ago(seconds=ready), available_at=ago(seconds=available))
    for where in (JOBS, job_page(job)):
        assert (LATE in text(viewer.get(where))) is is_late


def test_moments_are_by_the_stores_clock_and_may_be_ahead(viewer: Client) -> None:
    waiting_job(state="scheduled", available_at=ago(minutes=-10, seconds=-30))
    assert "in 10\xa0minutes</time>" in text(viewer.get(JOBS))


def test_filters_and_search(viewer: Client) -> None:
    mail, slow = waiting_job(queue="mail"), waiting_job(queue="slow", state="scheduled")
    for query, found in {
        "": {mail.pk, slow.pk},
        "queue=mail": {mail.pk},
        "state=scheduled": {slow.pk},
        "state=nonsense": {mail.pk, slow.pk},
        "queue=mail&state=scheduled": set(),
        f"q={slow.pk}": {slow.pk},
        f"q={str(slow.pk).upper()}": {slow.pk},
        "q=mail": set(),
    }.items():
        assert ids(viewer.get(f"{JOBS}?{query}")) == found, query
    assert viewer.get(f"{JOBS}?payload__contains=x").status_code == 400


def test_the_page_of_one(viewer: Client) -> None:
    job = waiting_job(
        state="reserved",
        worker="web1:7:ab",
        reserved_until=ago(seconds=-60),
        retry_until=ago(hours=-1),
        attempts=2,
        payload='{"args":[42],"kwargs":{}}',
        metadata='{"request":"4be1"}',
        errors=history(count=1),
    )
    shown = text(viewer.get(job_page(job)))
    for part in (str(job.pk), "Reserved until", "Attempts start until", "web1:7:ab", "42", "4be1", "Timeout: number 1"):
        assert part in shown, part
    assert 'action="' not in shown.split('id="content-main"')[1].split("</form>")[0]


def test_a_job_that_has_ended_is_told(viewer: Client) -> None:
    job = waiting_job()
    job.delete()
    answer = viewer.get(job_page(Job(pk=job.pk or waiting_job().pk)), follow=True)
    assert answer.status_code == 200


@pytest.mark.parametrize("count", [1, 120])
def test_every_page_takes_few_queries_and_no_payload(
    viewer: Client, count: int, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _number in range(count):
        job = waiting_job()
    for where in (JOBS, f"{JOBS}?state=ready&queue=default", job_page(job)):
        with django_assert_max_num_queries(MOST_QUERIES):
            text(viewer.get(where))
    deferred = viewer.get(JOBS).context["cl"].result_list[0].get_deferred_fields()
    assert deferred == {"payload", "errors", "metadata", "masked", "flow"}
