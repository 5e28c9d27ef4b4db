"""The list of failed jobs and the page of one: what is shown, found, retried and forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import IntegrityError
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from django_jobqueue.drivers.dead_letters import DeadLetters
from django_jobqueue.models import FailedJob, Job
from tests.edges.commands import dead_letter, dead_letters
from tests.edges.pages import LIST, MOST_QUERIES, OPERATE, VIEW, history, page, person, rows, text, told
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    return person(*OPERATE)


# The list


def test_the_list_shows_what_failed_and_why(operator: Client) -> None:
    letter = dead_letter(
        "shop.jobs.mail.send_receipt",
        exception_class="requests.exceptions.Timeout",
        exception_message="x" * 300,
        failed_at=datetime.now(UTC) - timedelta(hours=4),
    )
    shown = text(operator.get(LIST))
    assert f'title="shop.jobs.mail.send_receipt {letter.job_id}"' in shown
    assert ">mail.send_receipt</span>" in shown
    assert f"#{letter.pk} {str(letter.job_id)[-8:]}" in shown
    assert '<strong title="requests.exceptions.Timeout">Timeout</strong>' in shown
    assert "x" * 119 + "…" in shown
    assert "x" * 120 not in shown
    assert "3/3" in shown
    assert f'<time datetime="{letter.failed_at.isoformat()}" title="' in shown
    assert "4\xa0hours ago</time>" in shown


def test_an_empty_list(operator: Client) -> None:
    assert rows(operator.get(LIST)) == []


@pytest.mark.parametrize("permissions", [VIEW, OPERATE])
@pytest.mark.parametrize("count", [0, 1, 120])
def test_every_page_takes_few_queries(
    permissions: tuple[str, ...],
    count: int,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    client = person(*permissions)
    dead_letters(count, errors=history())
    letter = dead_letter(errors=history())
    addresses = [LIST, f"{LIST}?p=2", f"{LIST}?queue=default&name=edges.succeed&when=day&q=succeed", page(letter)]
    if count < 100:
        addresses.remove(f"{LIST}?p=2")
    for address in addresses:
        with django_assert_max_num_queries(MOST_QUERIES):
            text(client.get(address))


def test_the_list_reads_neither_payloads_nor_tracebacks(operator: Client) -> None:
    dead_letter()
    deferred = operator.get(LIST).context["cl"].result_list[0].get_deferred_fields()
    assert deferred == {"payload", "errors", "metadata", "masked", "flow"}


def test_the_count_stops_at_its_limit_and_says_so(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobqueue.admin.base.MAX_COUNTED", 60)
    dead_letters(60)
    assert "More than" not in text(operator.get(LIST))
    dead_letters(40)
    response = operator.get(LIST)
    assert "More than 60 failed jobs: use a filter or the search to reach others." in text(response)
    assert response.context["cl"].paginator.num_pages == 2


def test_paging_shows_each_row_once_whatever_the_order(operator: Client) -> None:
    """F65"""
    dead_letters(250, failed_at=datetime.now(UTC))
    for order in ("", "&o=1", "&o=-1", "&o=5", "&o=-5", "&when=day"):
        seen = [
            number
            for number_of_page in range(1, 6)
            for number in rows(operator.get(f"{LIST}?p={number_of_page}{order}"))
        ]
        assert len(seen) == len(set(seen)) == 250, order
        assert seen == sorted(seen, reverse=order not in {"&o=1", "&o=5"}), order


def test_filters(operator: Client) -> None:
    now = datetime.now(UTC)
    mail = dead_letter("shop.mail", queue="mail", exception_class="KeyError", failed_at=now - timedelta(minutes=5))
    stock = dead_letter("shop.stock", exception_class="OSError", failed_at=now - timedelta(hours=3))
    old = dead_letter("shop.stock", exception_class="OSError", failed_at=now - timedelta(days=9))
    assert rows(operator.get(LIST)) == [old.pk, stock.pk, mail.pk]
    for query, found in {
        "queue=mail": [mail],
        "name=shop.stock": [old, stock],
        "error=OSError": [old, stock],
        "when=hour": [mail],
        "when=day": [mail, stock],
        "when=week": [mail, stock],
        "when=older": [old],
        "when=nonsense": [mail, stock, old],
        "queue=default&error=OSError&when=day": [stock],
        "queue=": [],
        "queue=%00": [],
    }.items():
        assert rows(operator.get(f"{LIST}?{query}")) == [letter.pk for letter in found], query


def test_filters_offer_few_values_and_the_chosen_one(operator: Client) -> None:
    for number in range(40):
        dead_letter(f"shop.job_{number:02}")
    names = _filter_choices(operator.get(LIST), "job")
    assert names[:2] == ["All", "shop.job_00"]
    assert len(names) == 1 + 30
    chosen = operator.get(f"{LIST}?name=shop.job_39")
    assert len(rows(chosen)) == 1
    assert "shop.job_39" in _filter_choices(chosen, "job")


def _filter_choices(response: Any, title: str) -> list[str]:
    change_list = response.context["cl"]
    (found,) = [spec for spec in change_list.filter_specs if str(spec.title) == title]
    return [str(choice["display"]) for choice in found.choices(change_list)]


def test_search(operator: Client) -> None:
    mail = dead_letter("shop.jobs.send_receipt", exception_class="smtplib.SMTPException")
    ident = "01a228e7-f672-747b-a7d4-8563f14f13ef"  # an ending of digits alone would be a number
    stock = dead_letter("shop.jobs.sync_stock", exception_class="KeyError", job_id=UUID(ident))
    for term, found in {
        str(mail.pk): [mail],
        ident: [stock],
        ident[-8:]: [stock],
        ident.replace("-", "")[-7:].upper(): [stock],
        "send_receipt": [mail],
        "RECEIPT": [mail],
        "shop.jobs.sync_stock": [stock],
        "keyerror": [stock],
        "shop": [stock, mail],
        "shop keyerror": [stock],
        "shop receipt keyerror": [],
        "nothing": [],
        "9" * 30: [],
        "%": [],
        "": [stock, mail],
    }.items():
        # Digits only are a number, also where they happen to end an id.
        if term.isdigit() and term not in {str(mail.pk), "9" * 30}:
            continue
        assert rows(operator.get(LIST, {"q": term})) == [letter.pk for letter in found], term


def test_search_looks_into_neither_payloads_nor_errors(operator: Client) -> None:
    dead_letter(payload='{"args":["needle"],"kwargs":{}}', exception_message="needle", errors=history(message="needle"))
    assert rows(operator.get(LIST, {"q": "needle"})) == []


@pytest.mark.parametrize(
    "lookup", ["payload__contains=x", "errors__icontains=x", "metadata=x", "id__gt=1", "queue__in=a"]
)
def test_no_other_condition_can_be_asked_for(operator: Client, lookup: str) -> None:
    dead_letter()
    assert operator.get(f"{LIST}?{lookup}").status_code == 400


# One failed job


def test_the_page_of_one_shows_everything(operator: Client) -> None:
    letter = dead_letter(
        "edges.succeed",
        payload='{"args":[],"kwargs":{"sku":42,"sent":{"$type":"date","value":"2026-02-03"},"tags":["a"]}}',
        metadata='{"request":"4be1"}',
        errors=history(count=25),
        rank=-7,
        retries=2,
    )
    shown = text(operator.get(page(letter)))
    for part in [
        "✖ failed for good, attempt 3/3",
        "edges.succeed",
        f"#{letter.pk} <code>{letter.job_id}</code>",
        "25 failed in all; 5 earlier ones are no longer kept.",
        "web1:48213:ab",
        "30\xa0s",
        "Timeout: number 25",
        "Timeout: number 6",
        "<td>int</td>",
        "42",
        "date(&quot;2026-02-03&quot;)",
        "4be1",
        ">Retry</button>",
        "/forget/",
    ]:
        assert part in shown, part
    assert "Timeout: number 5\n" not in shown
    assert shown.count("<details") == 20
    assert shown.count("<details open>") == 1


def test_a_job_without_a_handler_has_a_warning_and_no_retry(operator: Client) -> None:
    letter = dead_letter("shop.removed")
    shown = text(operator.get(page(letter)))
    assert "No handler has the name of this job" in shown
    assert ">Retry</button>" not in shown
    assert "/forget/" in shown


def test_a_job_module_that_is_broken_is_a_warning_too(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> None:
        raise RuntimeError("secret of the code")

    monkeypatch.setattr("django_jobqueue.admin.acts.load_handlers", break_down)
    letter = dead_letter()
    shown = text(operator.get(page(letter)))
    assert "A job module cannot be imported" in shown
    assert "secret of the code" not in shown
    assert ">Retry</button>" not in shown
    answer = operator.post(page(letter, "retry"), follow=True)
    assert told(answer) == [f"#{letter.pk}: not retried, since a job module cannot be imported. The log says why."]
    assert operator.post(LIST, {"action": "retry_selected", "_selected_action": [letter.pk]}).status_code == 302
    assert FailedJob.objects.count() == 1


# Retry and forget


def test_retry_moves_the_job_back_tells_and_logs(operator: Client) -> None:
    letter = dead_letter(queue="mail")
    answer = operator.post(page(letter, "retry"), follow=True)
    assert told(answer) == [
        f"The failed job #{letter.pk} (edges.succeed) was retried: it is back on the queue “mail”. See the job."
    ]
    job = Job.objects.get(pk=letter.job_id)
    assert (job.state, job.attempts, job.retries) == ("ready", 0, 1)
    assert not FailedJob.objects.exists()
    assert f"/admin/django_jobqueue/job/{job.pk}/change/" in text(answer)
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.get_change_message()) == (CHANGE, str(letter.pk), "Retried.")
    assert entry.content_type.model == "failedjob"


def test_forget_asks_first_then_deletes_tells_and_logs(operator: Client) -> None:
    letter = dead_letter()
    shown = text(operator.get(page(letter, "forget")))
    assert "cannot be undone" in shown
    assert "Yes, forget it" in shown
    assert FailedJob.objects.exists()
    answer = operator.post(page(letter, "forget"), follow=True)
    assert told(answer) == [f"The failed job #{letter.pk} (edges.succeed) was forgotten."]
    assert not FailedJob.objects.exists()
    assert not Job.objects.exists()
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.object_repr) == (
        DELETION,
        str(letter.pk),
        f"edges.succeed #{letter.pk}",
    )


@pytest.mark.parametrize("act", ["retry", "forget"])
def test_the_second_person_is_told_that_it_is_done(operator: Client, act: str) -> None:
    letter = dead_letter()
    operator.post(page(letter, act))
    answer = person(*OPERATE).post(page(letter, act), follow=True)
    assert told(answer) == [f"The failed job #{letter.pk} is gone: already retried, or forgotten."]
    assert LogEntry.objects.count() == 1
    assert Job.objects.count() == (1 if act == "retry" else 0)


def test_a_get_only_asks(operator: Client) -> None:
    letter = dead_letter()
    for act in ("retry", "forget"):
        assert "<form" in text(operator.get(page(letter, act)))
        assert operator.head(page(letter, act)).status_code == 200
        assert operator.put(page(letter, act)).status_code == 405
        assert operator.delete(page(letter, act)).status_code == 405
    assert FailedJob.objects.count() == 1
    assert not LogEntry.objects.exists()


def test_the_filters_are_kept(operator: Client) -> None:
    letter = dead_letter(queue="mail")
    detail = text(operator.get(f"{page(letter)}?_changelist_filters=queue%3Dmail"))
    assert f'action="{page(letter, "retry")}?_changelist_filters=queue%3Dmail"' in detail
    answer = operator.post(f"{page(letter, 'retry')}?_changelist_filters=queue%3Dmail")
    assert answer["Location"] == f"{LIST}?queue=mail"


def test_actions_on_selected_rows(operator: Client) -> None:
    known, other, unknown = dead_letter(), dead_letter(), dead_letter("shop.removed")
    stays = dead_letter()
    unreadable = dead_letter(payload="{")
    chosen = [known.pk, other.pk, unknown.pk, unreadable.pk]
    answer = operator.post(LIST, {"action": "retry_selected", "_selected_action": chosen}, follow=True)
    assert told(answer) == [
        "Retried 2 failed jobs.",
        f"#{unknown.pk}: not retried, since no handler has this name. Restore the handler, or forget the job.",
        f"#{unreadable.pk}: not retried, since the payload cannot be read, so it would only fail again.",
    ]
    assert set(Job.objects.values_list("id", flat=True)) == {known.job_id, other.job_id}
    chosen = [unknown.pk, unreadable.pk]
    answer = operator.post(LIST, {"action": "forget_selected", "_selected_action": chosen}, follow=True)
    assert told(answer) == ["Forgot 2 failed jobs."]
    assert list(FailedJob.objects.values_list("pk", flat=True)) == [stays.pk]
    assert LogEntry.objects.filter(action_flag=CHANGE).count() == 2
    assert LogEntry.objects.filter(action_flag=DELETION).count() == 2


def test_an_action_keeps_the_filters_of_the_list(operator: Client) -> None:
    letter = dead_letter(queue="mail")
    answer = operator.post(f"{LIST}?queue=mail", {"action": "retry_selected", "_selected_action": [letter.pk]})
    assert answer["Location"] == f"{LIST}?queue=mail"


def test_rows_that_are_gone_are_told(operator: Client) -> None:
    letter = dead_letter()
    letter.delete()
    answer = operator.post(LIST, {"action": "retry_selected", "_selected_action": [9]}, follow=True)
    assert told(answer) == ["Nothing to do: the selected failed jobs are gone."]


@pytest.mark.parametrize("across", [True, False])
def test_more_than_a_page_is_refused(operator: Client, across: bool) -> None:
    dead_letters(51)
    chosen = [0] if across else list(FailedJob.objects.values_list("pk", flat=True))
    data = {"action": "retry_selected", "_selected_action": chosen, "select_across": "1" if across else "0"}
    answer = operator.post(LIST, data, follow=True)
    assert told(answer) == [
        "More than 50 failed jobs are selected, so nothing was done. "
        "Select fewer, or run “manage.py queue_retry all” for all of them."
    ]
    assert not Job.objects.exists()
    assert "question hidden" not in text(answer)


def test_one_row_that_the_database_refuses_stops_no_other(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = dead_letter(), dead_letter()
    copy = DeadLetters._copy_back

    def refused(letters: DeadLetters, numbers: Sequence[int], *given: Any) -> None:
        if first.pk in numbers:
            raise IntegrityError("refused")
        copy(letters, numbers, *given)

    monkeypatch.setattr(DeadLetters, "_copy_back", refused)
    answer = operator.post(LIST, {"action": "retry_selected", "_selected_action": [first.pk, second.pk]}, follow=True)
    assert told(answer) == [
        "Retried 1 failed job.",
        f"#{first.pk}: nothing was done, since its store refuses, or is out of reach. The log says why.",
    ]
    assert list(FailedJob.objects.values_list("pk", flat=True)) == [first.pk]


def test_a_connection_that_the_settings_lack(operator: Client) -> None:
    letter = dead_letter(connection="gone")
    assert "gone" in text(operator.get(page(letter)))
    answer = operator.post(page(letter, "retry"), follow=True)
    assert told(answer) == [f"#{letter.pk}: nothing was done, since the settings lack its queue connection."]
    assert FailedJob.objects.exists()
