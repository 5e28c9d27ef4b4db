"""Who may do what: every act and every address, for people who may only look, and for people who may less."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_jobqueue.admin.failed_jobs import FailedJobAdmin
from django_jobqueue.admin.jobs import JobAdmin
from django_jobqueue.admin.workers import WorkerAdmin
from django_jobqueue.models import FailedJob, Job, Worker
from tests.edges.commands import dead_letter
from tests.edges.pages import (
    JOBS,
    LIST,
    OPERATE,
    VIEW,
    WORKERS,
    history,
    job_page,
    page,
    person,
    text,
    told,
    waiting_job,
    working,
)
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = pytest.mark.django_db

MODELS = {
    "failedjob": FailedJobAdmin(FailedJob, admin.site),
    "job": JobAdmin(Job, admin.site),
    "worker": WorkerAdmin(Worker, admin.site),
}
ADDRESSES = [
    (model, pattern.name)
    for model, model_admin in MODELS.items()
    for pattern in model_admin.get_urls()
    if pattern.name  # the last one only redirects
]
ACTIONS = ["retry_selected", "forget_selected", "delete_selected", "pause", ""]


@pytest.fixture
def letter() -> FailedJob:
    return dead_letter(errors=history())


@pytest.fixture
def waiting() -> Job:
    return waiting_job()


def everything() -> list[Any]:
    return [tuple(model.objects.order_by("pk").values_list()) for model in (FailedJob, Job, Worker)]


def address(model: str, name: str, letter: FailedJob, waiting: Job) -> str:
    rows = {"failedjob": letter, "job": waiting, "worker": Worker.objects.first() or working()}
    return reverse(f"admin:{name}", args=[] if name.endswith(("_add", "_changelist")) else [rows[model].pk])


def test_the_addresses_are_those_that_are_meant() -> None:
    stock = {"add", "changelist", "history", "delete", "change"}
    for plain in ("job", "worker"):
        found = {name for model, name in ADDRESSES if model == plain}
        assert found == {f"django_jobqueue_{plain}_{name}" for name in stock}
    assert {name for model, name in ADDRESSES if model == "failedjob"} == {
        f"django_jobqueue_failedjob_{name}" for name in {*stock, "retry", "forget"}
    }


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
@pytest.mark.parametrize(("model", "name"), ADDRESSES)
def test_who_may_only_look_changes_nothing_at_any_address(
    letter: FailedJob, waiting: Job, model: str, name: str, method: str
) -> None:
    client = person(*VIEW, "view_payload_job")
    where = address(model, name, letter, waiting)
    before = everything()
    data = {"post": "yes", "action": "retry_selected", "_selected_action": [letter.pk], "queue": "other", "_save": "1"}
    answer = getattr(client, method)(where, data if method in {"get", "post"} else b"", **_content_type(method))
    assert answer.status_code < 500
    assert everything() == before
    assert not LogEntry.objects.exists()


def _content_type(method: str) -> dict[str, str]:
    return {} if method in {"get", "post"} else {"content_type": "text/plain"}


@pytest.mark.parametrize("across", ["0", "1"])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("where", [LIST, JOBS, WORKERS])
def test_who_may_only_look_runs_no_action(
    letter: FailedJob, waiting: Job, where: str, action: str, across: str
) -> None:
    before = everything()
    chosen = letter.pk if where == LIST else waiting.pk
    answer = person(*VIEW).post(where, {"action": action, "_selected_action": [chosen], "select_across": across})
    assert answer.status_code in {200, 302, 403}
    assert everything() == before


def test_every_action_of_ours_asks_for_a_permission() -> None:
    for model_admin in MODELS.values():
        for name in model_admin.actions or ():
            assert getattr(getattr(model_admin, name), "allowed_permissions", None), name


def test_who_may_only_look_sees_no_button(letter: FailedJob) -> None:
    client = person(*VIEW)
    shown = text(client.get(page(letter)))
    assert ">Retry</button>" not in shown
    assert "/forget/" not in shown
    assert "action-select" not in text(client.get(LIST))


@pytest.mark.parametrize("granted", ["retry_failedjob", "delete_failedjob"])
def test_each_act_has_a_permission_of_its_own(letter: FailedJob, granted: str) -> None:
    client = person(*VIEW, granted)
    allowed, refused = ("retry", "forget") if granted == "retry_failedjob" else ("forget", "retry")
    for method in ("get", "post"):
        assert getattr(client, method)(page(letter, refused)).status_code == 403
    other = {"action": f"{refused}_selected", "_selected_action": [letter.pk]}
    client.post(LIST, other)
    assert FailedJob.objects.filter(pk=letter.pk).exists()
    assert client.post(page(letter, allowed)).status_code == 302
    assert not FailedJob.objects.filter(pk=letter.pk).exists()


def test_an_act_without_view_permission_is_refused(letter: FailedJob) -> None:
    client = person("retry_failedjob", "delete_failedjob")
    assert client.get(LIST).status_code == 403
    for act in ("retry", "forget"):
        assert client.post(page(letter, act)).status_code == 403
    assert client.post(LIST, {"action": "retry_selected", "_selected_action": [letter.pk]}).status_code == 403
    assert FailedJob.objects.exists()


@pytest.mark.parametrize("name", ["delete", "add"])
def test_nobody_uses_djangos_own_pages_for_changing_rows(letter: FailedJob, waiting: Job, name: str) -> None:
    user = User.objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    for model in MODELS:
        where = address(model, f"django_jobqueue_{model}_{name}", letter, waiting)
        assert client.get(where).status_code == 403
        assert client.post(where, {"post": "yes"}).status_code == 403
    for where in (page(letter), job_page(waiting)):
        assert client.post(where, {"_save": "1", "queue": "x"}).status_code == 403
        assert client.post(where, {"_saveasnew": "1"}).status_code == 403
    data = {"action": "delete_selected", "_selected_action": [letter.pk], "post": "yes"}
    assert told(client.post(LIST, data, follow=True)) == ["No action selected."]
    assert FailedJob.objects.exists()


def test_a_post_needs_a_csrf_token(letter: FailedJob) -> None:
    user = User.objects.create_superuser("root")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    for act in ("retry", "forget"):
        assert client.post(page(letter, act)).status_code == 403
    assert FailedJob.objects.exists()


def test_without_a_login_there_is_only_the_login(letter: FailedJob, waiting: Job) -> None:
    for model, name in ADDRESSES:
        answer = Client().post(address(model, name, letter, waiting))
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/")
    assert FailedJob.objects.exists()


def test_no_permission_no_page(letter: FailedJob, waiting: Job) -> None:
    client = person()
    for where in (
        LIST,
        JOBS,
        WORKERS,
        f"{WORKERS}{working().pk}/change/",
        page(letter),
        job_page(waiting),
        page(letter, "history"),
    ):
        assert client.get(where).status_code == 403
    assert client.get("/admin/django_jobqueue/").status_code == 404


KWARGS = '{"email":"anna@example.com","address":{"city":"Lyonesse","pin":"9876543"},"password":"hunter2"}'
PAYLOAD = f'{{"args":[41],"kwargs":{KWARGS}}}'
MASKED = '[["kwargs","email"],["kwargs","address","pin"]]'


@pytest.fixture
def secretive() -> FailedJob:
    return dead_letter(
        payload=PAYLOAD,
        masked=MASKED,
        metadata='{"request":"4be1","session":"s3ss10n"}',
        errors=history(message="mail to anna@example.com bounced, pin 9876543", traceback="at hunter2 in mail.py"),
        exception_message="mail to anna@example.com bounced",
    )


def test_names_and_types_for_everybody_values_for_some(secretive: FailedJob) -> None:
    shown = text(person(*VIEW).get(page(secretive)))
    for part in ("argument 1", "<td>int</td>", "email", "address", "&quot;city&quot;: str", "request"):
        assert part in shown, part
    for part in ("41<", "Lyonesse", "4be1", "anna@", "9876543", "hunter2", "s3ss10n", "mail.py"):
        assert part not in shown, part
    assert "Shown to those who may view payload values." in shown


def test_masked_values_are_for_nobody(secretive: FailedJob) -> None:
    for client in (person(*OPERATE), _root()):
        shown = text(client.get(page(secretive)))
        for part in ("41", "Lyonesse", "4be1", "••••••", "mail.py"):
            assert part in shown, part
        for part in ("anna@", "9876543", "hunter2", "s3ss10n"):
            assert part not in shown, part


def test_masks_that_cannot_be_read_hide_every_value() -> None:
    letter = dead_letter(payload=PAYLOAD, masked="{")
    shown = text(_root().get(page(letter)))
    for part in ("41<", "Lyonesse", "anna@", "9876543", "hunter2"):
        assert part not in shown, part


def test_what_cannot_be_read_is_shown_only_where_nothing_is_masked() -> None:
    client = person(*OPERATE)
    assert "visible" in text(client.get(page(dead_letter(payload='{"args": visible'))))
    for changes in ({"masked": MASKED}, {"payload": '{"kwargs": {"password": "visible"'}):
        shown = text(client.get(page(dead_letter(**{"payload": '{"args": visible', **changes}))))
        assert "since it may hold masked values" in shown
        assert "visible" not in shown
    shown = text(person(*VIEW).get(page(dead_letter(payload='{"args": visible'))))
    assert "It cannot be read." in shown
    assert "visible" not in shown


def test_a_message_is_brief_for_those_who_see_no_values() -> None:
    letter = dead_letter(exception_message="m" * 400, errors=history(message="m" * 400))
    assert "m" * 120 not in text(person(*VIEW).get(page(letter)))
    assert "m" * 400 in text(person(*OPERATE).get(page(letter)))


def test_jobs_keep_values_by_the_same_rules() -> None:
    waiting = waiting_job(payload=PAYLOAD, masked=MASKED, errors=history(traceback="at hunter2 in mail.py"))
    shown = text(person(*VIEW).get(job_page(waiting)))
    assert "email" in shown
    assert "Lyonesse" not in shown
    assert "mail.py" not in shown
    shown = text(person(*OPERATE).get(job_page(waiting)))
    assert "Lyonesse" in shown
    assert "mail.py" in shown
    assert "anna@" not in shown
    assert "hunter2" not in shown


def _root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client
