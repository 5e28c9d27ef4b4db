"""The progress of jobs on pages of the project: by a signed token, and nothing but numbers and a stage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core import signing
from django.db import OperationalError, transaction
from django.template import Context, Template
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_jobqueue import PREVIOUS, InvalidOption, JobContext, batch, chain, get_batch, get_job, progress_token
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.ids import new_job_id
from django_jobqueue.operations import failed_jobs
from django_jobqueue.operations.progress import MOST_STEPS, SALT, how_far
from django_jobqueue.running.worker import Worker
from tests.helpers.caching import TroubledCache, kept_in, patient, troubled
from tests.helpers.fixtures import FLAKY

Register = Callable[..., Callable[[Callable[..., Any]], Any]]

__all__ = ["kept_in", "patient", "troubled"]


@pytest.fixture
def memory(settings: Any, kept_in: str) -> Driver:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    return connections["default"]


@pytest.fixture
def step(register: Register) -> Any:
    """A job that says it is at 50 %, looks at what a page would show, and fails when it is told to."""

    @register(takes_context=True, max_attempts=1, sensitive=("what",))
    def step(context: JobContext, what: Any = None) -> Any:
        context.progress(50, f"step {what}")
        if callable(LOOK.get("look")):
            LOOK["look"]()
        if what == "bad":
            raise ValueError("the secret of the error")
        return what

    LOOK.clear()
    return step


LOOK: dict[str, Any] = {}


def ask(of: Any, **headers: str) -> Any:
    token = of if isinstance(of, str) else progress_token(of)
    return Client().get(reverse("django_jobqueue:progress", args=[token]), headers=headers)


def numbers(of: Any) -> tuple[str, int | None]:
    answer = ask(of).json()
    return answer["state"], answer["percent"]


def run_all(driver: Driver) -> None:
    worker = Worker(drivers=[driver])
    now = timezone.now()
    while worker.work_once(now=now):
        now += timedelta(seconds=1)


def test_a_page_is_told_a_percentage_a_stage_and_a_state_and_nothing_else(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch("bad")
    assert ask(dispatched).json() == {
        "state": "waiting", "label": "waiting", "percent": None, "stage": "", "is_over": False,
    }  # fmt: skip
    run_all(memory)
    answer = ask(dispatched)
    assert answer.json() == {
        "state": "failed", "label": "failed", "percent": 50, "stage": "step bad", "is_over": True,
    }  # fmt: skip
    assert "secret" not in answer.text
    assert "no-store" in answer["Cache-Control"]


def test_a_job_that_succeeded_is_at_a_hundred_percent(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch(1)
    run_all(memory)
    assert get_job(dispatched.id) is None
    assert ask(dispatched).json() == {
        "state": "processed", "label": "done", "percent": 100, "stage": "step 1", "is_over": True,
    }  # fmt: skip


def test_a_job_that_never_said_anything_is_followed_too(memory: Driver, register: Register) -> None:
    @register()
    def silent() -> None: ...

    dispatched = silent.dispatch()
    assert numbers(dispatched) == ("waiting", None)
    run_all(memory)
    assert numbers(dispatched) == ("processed", 100)


@pytest.mark.parametrize("keep_result", [0, 60])
def test_a_job_that_was_cancelled_says_so_whether_it_keeps_its_result_or_not(
    memory: Driver, register: Register, keep_result: float
) -> None:
    @register(keep_result=keep_result)
    def silent() -> None: ...

    dispatched = silent.dispatch()
    job = get_job(dispatched.id)
    assert job is not None
    job.cancel()
    assert numbers(dispatched) == ("cancelled", None)


def test_a_job_whose_attempt_failed_waits_with_what_it_said(memory: Driver, register: Register) -> None:
    @register(takes_context=True, max_attempts=2, backoff=600)
    def shaky(context: JobContext) -> None:
        context.progress(30)
        raise ValueError

    dispatched = shaky.dispatch()
    run_all(memory)
    assert numbers(dispatched) == ("waiting", 30)


# A job that is gone


def test_a_success_whose_last_report_is_not_stored_yet_is_a_success(
    memory: Driver, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    store = memory.progress.write

    def look_first(reports: Any, *, now: Any = None) -> None:
        seen.append(numbers(dispatched))
        store(reports, now=now)

    dispatched = step.dispatch(1)
    monkeypatch.setattr(memory.progress, "write", look_first)
    run_all(memory)
    assert seen == [("processed", 100)]


def test_a_success_of_which_no_end_could_be_stored_is_a_success(
    memory: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(takes_context=True)
    def twice(context: JobContext) -> None:
        context.progress(30)
        if context.attempt == 1 and not released:
            released.append(True)
            context.release(0)
        monkeypatch.setattr(memory.progress, "write", away)

    def away(*given: Any, **more: Any) -> None:
        raise OperationalError("server closed the connection")

    released: list[bool] = []
    dispatched = twice.dispatch()
    run_all(memory)
    assert numbers(dispatched) == ("processed", 100)


@pytest.mark.parametrize(("has_said", "percent"), [(True, 50), (False, None)])
def test_a_job_that_was_cancelled_says_so(
    memory: Driver, register: Register, has_said: bool, percent: int | None
) -> None:
    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(50, "half")
        context.release(3600)

    dispatched = work.dispatch()
    if has_said:
        run_all(memory)
    job = get_job(dispatched.id)
    assert job is not None
    assert job.cancel()
    assert numbers(dispatched) == ("cancelled", percent)
    assert ask(dispatched).json()["is_over"] is True


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_a_cancel_that_is_rolled_back_leaves_no_mark(settings: Any, kept_in: str, step: Any, commits: bool) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": "database"}}}
    dispatched = step.dispatch(1)
    with transaction.atomic():
        job = get_job(dispatched.id)
        assert job is not None
        assert job.cancel()
        transaction.set_rollback(not commits)
    assert (connections["default"].progress.get(dispatched.id) is not None) is commits
    assert numbers(dispatched) == (("cancelled", None) if commits else ("waiting", None))


def test_a_cancel_is_one_although_progress_cannot_be_stored(
    memory: Driver, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: Any, **more: Any) -> Any:
        raise OperationalError("server closed the connection")

    job = get_job(step.dispatch(1).id)
    assert job is not None
    for method in ("write", "get_many"):
        monkeypatch.setattr(memory.progress, method, away)
    assert job.cancel()
    assert get_job(job.id) is None


def test_a_dead_letter_that_was_forgotten_has_failed(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch("bad")
    run_all(memory)
    failed_jobs.forget(memory.failed(job_id=dispatched.id))
    assert numbers(dispatched) == ("failed", 50)


def test_a_dead_letter_that_was_retried_and_says_nothing_now_has_succeeded(memory: Driver, register: Register) -> None:
    @register(takes_context=True, max_attempts=1)
    def once(context: JobContext) -> None:
        if not failed:
            failed.append(True)
            context.progress(50)
            context.fail("no luck")

    failed: list[bool] = []
    dispatched = once.dispatch()
    run_all(memory)
    assert numbers(dispatched) == ("failed", 50)
    failed_jobs.retry(memory.failed(job_id=dispatched.id))
    run_all(memory)
    assert numbers(dispatched) == ("processed", 100)


def test_to_forget_what_said_nothing_stores_nothing(
    memory: Driver, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register(max_attempts=1)
    def silent() -> None:
        raise ValueError

    dispatched = silent.dispatch()
    run_all(memory)
    written: list[Any] = []
    monkeypatch.setattr(memory.progress, "write", lambda reports, *, now=None: written.append(reports))
    failed_jobs.forget(memory.failed(job_id=dispatched.id))
    assert written == []


def test_a_chain_of_which_a_step_was_cancelled_is_over_there(memory: Driver, step: Any) -> None:
    dispatched = chain(step.s(1), step.s(2), step.s(3), step.s(4)).dispatch()
    assert Worker(drivers=[memory]).work_once()
    job = get_job(dispatched.ids[1])
    assert job is not None
    assert job.cancel()
    assert numbers(dispatched) == ("cancelled", 25)


def test_a_cache_that_fails_leaves_the_state_true(troubled: type[TroubledCache], settings: Any, step: Any) -> None:
    def away() -> None:
        raise ConnectionError("the cache is away")

    settings.JOBQUEUE = {**settings.JOBQUEUE, "CONNECTIONS": {"default": {"DRIVER": "memory"}}}
    dispatched = step.dispatch("bad")
    troubled.before_write = troubled.before_read = away
    assert numbers(dispatched) == ("waiting", None)
    run_all(connections["default"])
    assert numbers(dispatched) == ("failed", None)
    job = get_job(dispatched.id)
    assert job is not None
    assert job.progress is None


# Tokens


@pytest.mark.parametrize("as_what", ["dispatched", "found", "id"])
def test_a_token_is_made_of_whatever_names_a_job(memory: Driver, step: Any, as_what: str) -> None:
    dispatched = step.dispatch(1)
    of = {"dispatched": dispatched, "found": get_job(dispatched.id), "id": dispatched.id}[as_what]
    assert numbers(of) == ("waiting", None)


@pytest.mark.parametrize("wrong", [7, "text", None, b"x", [], [7], ["text"]])
def test_what_names_no_job_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="cannot be followed"):
        progress_token(wrong)


@pytest.mark.parametrize("kind", ["text", "other salt", "no list", "no id", "too old"])
def test_a_token_that_is_not_ours_or_too_old_is_not_found(
    memory: Driver, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = new_job_id().hex
    if kind == "too old":
        monkeypatch.setattr("django.core.signing.time.time", lambda: 1_000_000_000.0)
    token = {
        "text": job_id,
        "other salt": signing.dumps(["job", job_id]),
        "no list": signing.dumps(7, salt=SALT),
        "no id": signing.dumps(["job", "x"], salt=SALT),
        "too old": signing.dumps(["job", job_id], salt=SALT),
    }[kind]
    monkeypatch.undo()
    assert how_far(token) is None
    assert ask(token).status_code == 404


def test_while_a_store_is_out_of_reach_it_says_so_and_may_be_asked_again(
    settings: Any, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away_for_now(*given: Any) -> Any:
        raise OperationalError("server closed the connection")

    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "away": {"DRIVER": FLAKY}}}
    token = progress_token(step.using(connection="away").dispatch())
    with monkeypatch.context() as patched:
        patched.setattr(connections["away"], "get", away_for_now)
        assert ask(token).status_code == 503
    assert ask(token).status_code == 200


def test_only_reading_is_allowed(memory: Driver, step: Any) -> None:
    address = reverse("django_jobqueue:progress", args=[progress_token(step.dispatch())])
    assert Client().post(address).status_code == 405


# Chains and batches


def test_a_chain_is_as_far_as_the_step_that_has_its_turn(memory: Driver, step: Any) -> None:
    dispatched = chain(step.s(1), step.s(PREVIOUS), step.s(3), step.s(4)).dispatch()
    seen = []
    LOOK["look"] = lambda: seen.append(numbers(dispatched))
    worker = Worker(drivers=[memory])
    between = []
    while worker.work_once():
        between.append(numbers(dispatched))
    assert seen == [("running", 0), ("running", 25), ("running", 50), ("running", 75)]
    assert between == [("waiting", 25), ("waiting", 50), ("waiting", 75), ("processed", 100)]


def test_a_chain_that_died_stays_where_it_was(memory: Driver, step: Any) -> None:
    dispatched = chain(step.s(1), step.s("bad"), step.s(3), step.s(4)).dispatch()
    run_all(memory)
    answer = ask(dispatched).json()
    assert (answer["state"], answer["percent"], answer["is_over"]) == ("failed", 25 + 50 // 4, True)


def test_results_and_batches_that_are_kept_do_not_hold_a_chain_back(
    memory: Driver, register: Register, step: Any
) -> None:
    @register(keep_result=3600)
    def keeping() -> None: ...

    dispatched = chain(keeping.s(), batch([step.s(1), step.s(2)]), step.s(3)).dispatch()
    worker = Worker(drivers=[memory])
    seen = []
    while worker.work_once():
        seen.append(numbers(dispatched))
    assert seen == [("waiting", 33), ("waiting", 33), ("running", 50), ("waiting", 66), ("processed", 100)]


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_chain_is_followed_by_the_ids_of_its_steps_too(memory: Driver, step: Any, kind: Callable[..., Any]) -> None:
    dispatched = chain(step.s(1), step.s(2)).dispatch()
    assert Worker(drivers=[memory]).work_once()
    assert numbers(kind(dispatched.ids)) == ("waiting", 50)


def test_a_batch_is_followed_by_its_id_too(memory: Driver, step: Any) -> None:
    dispatched = batch([step.s(1), step.s(2)]).dispatch()
    assert Worker(drivers=[memory]).work_once()
    assert numbers(dispatched.id) == ("running", 50)


def test_a_batch_is_as_far_as_its_jobs(memory: Driver, step: Any) -> None:
    dispatched = batch([step.s(1), step.s("bad")], allow_failures=True).dispatch()
    assert numbers(dispatched) == ("waiting", 0)
    worker = Worker(drivers=[memory])
    worker.work_once()
    assert numbers(dispatched) == ("running", 50)
    assert ask(dispatched).json()["stage"] == "1 of 2"
    worker.work_once()
    assert numbers(dispatched) == ("processed", 100)
    found = get_batch(dispatched.id)
    assert found is not None
    assert numbers(found) == ("processed", 100)


@pytest.mark.parametrize(("act", "state"), [("fail", "failed"), ("cancel", "cancelled")])
def test_a_batch_that_ended_otherwise_says_so(memory: Driver, step: Any, act: str, state: str) -> None:
    dispatched = batch([step.s("bad")]).dispatch()
    if act == "fail":
        run_all(memory)
    else:
        found = get_batch(dispatched.id)
        assert found is not None
        found.cancel()
    assert numbers(dispatched) == (state, 100)


def test_a_chain_that_is_too_long_or_on_several_connections_is_refused(settings: Any, step: Any) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}}}
    with pytest.raises(InvalidOption, match=f"At most {MOST_STEPS} steps"):
        progress_token(chain(*[step.s()] * (MOST_STEPS + 1)).dispatch())
    with pytest.raises(InvalidOption, match="several connections"):
        progress_token(chain(step.s(), step.using(connection="fast").s()).dispatch())


def test_the_longest_chain_has_an_address_that_servers_take(memory: Driver, step: Any) -> None:
    token = progress_token(chain(*[step.s()] * MOST_STEPS).dispatch())
    assert len(reverse("django_jobqueue:progress", args=[token])) < 4000
    assert how_far(token) is not None


# The element


def bar(of: Any) -> str:
    return Template("{% load jobqueue %}{% job_progress of %}").render(Context({"of": of}))


def test_the_bar_is_true_without_a_script(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch(1)
    assert "value=" not in bar(dispatched)
    assert '<span class="jobqueue-state" role="status">waiting</span>' in bar(dispatched)
    assert "data-jobqueue-over" not in bar(dispatched)
    run_all(memory)
    assert '<progress max="100" value="100" aria-label="Progress">' in bar(progress_token(dispatched))
    assert "data-jobqueue-over" in bar(dispatched)


def test_a_stage_is_escaped(memory: Driver, register: Register) -> None:
    """F61"""

    @register(takes_context=True)
    def work(context: JobContext) -> None:
        context.progress(1, "<script>alert(1)</script>")

    dispatched = work.dispatch()
    run_all(memory)
    assert "<script>" not in bar(dispatched)
    assert "&lt;script&gt;" in bar(dispatched)


def test_the_bar_of_a_token_that_has_expired_asks_nothing(memory: Driver) -> None:
    shown = bar("expired")
    assert "data-jobqueue-over" in shown
    assert "done" not in shown, "nobody knows how it ended"
    answer = ask("expired", hx_request="true")
    assert (answer.status_code, answer.text) == (286, shown)


def test_nothing_of_the_element_is_inline(memory: Driver, step: Any, settings: Any) -> None:
    text = bar(step.dispatch()) + Template("{% load jobqueue %}{% jobqueue_progress_js %}").render(Context())
    assert "style=" not in text
    assert " on" not in text.replace(" on ", "")
    assert '<script src="/static/django_jobqueue/progress.js" defer></script>' in text


def test_htmx_gets_the_element_and_is_told_when_to_stop(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch(1)
    answer = ask(dispatched, hx_request="true")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert '<div class="jobqueue-progress"' in answer.text
    run_all(memory)
    assert ask(dispatched, hx_request="true").status_code == 286


def test_an_id_alone_opens_nothing(memory: Driver, step: Any) -> None:
    dispatched = step.dispatch(1)
    assert isinstance(dispatched.id, UUID)
    assert Client().get(f"/jobqueue/progress/{dispatched.id}/").status_code == 404
