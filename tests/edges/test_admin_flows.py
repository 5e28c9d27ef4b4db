"""What an operator sees of chains and batches: names of steps and the batch's id, and no argument."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.test import Client

from django_jobqueue.jobs.flows import Flow, Step
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.jobs.records import NewJob
from tests.edges.commands import dead_letter
from tests.edges.pages import OPERATE, job_page, page, person, text, waiting_job
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = pytest.mark.django_db

BATCH = UUID("01a2299c-0a74-71a9-b46d-84c707a4ba39")


def flow(*names: str, batch: UUID | None = None) -> str | None:
    payload = '{"args":["the card of anna"],"kwargs":{}}'
    steps = [Step("default", NewJob(new_job_id(), name, "default", payload, 1)) for name in names]
    return Flow(tuple(steps), None, batch).write()


@pytest.fixture
def operator() -> Client:
    return person(*OPERATE, "view_payload_job")


@pytest.mark.parametrize("kind", ["job", "dead letter"])
def test_a_page_names_the_steps_behind_and_the_batch(operator: Client, kind: str) -> None:
    stored = flow("shop.upload", "<b>shop.notify", batch=BATCH)
    where = job_page(waiting_job(flow=stored)) if kind == "job" else page(dead_letter(flow=stored))
    shown = text(operator.get(where))
    assert "shop.upload → &lt;b&gt;shop.notify" in shown
    assert str(BATCH) in shown
    assert "anna" not in shown


def test_of_a_long_chain_the_first_steps_are_named(operator: Client) -> None:
    names = [f"shop.step_{number}" for number in range(15)]
    shown = text(operator.get(page(dead_letter(flow=flow(*names)))))
    assert "shop.step_9 → 5 more" in shown
    assert "shop.step_10" not in shown


@pytest.mark.parametrize("stored", [None, "{", '{"steps":7}'])
def test_without_a_flow_or_with_one_that_cannot_be_read_nothing_is_said(operator: Client, stored: str | None) -> None:
    """F64"""
    answer = operator.get(page(dead_letter(flow=stored)))
    assert answer.status_code == 200
    assert "Then" not in text(answer)
