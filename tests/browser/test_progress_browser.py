"""A person watches a chain of three jobs, with and without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.worker import Worker
from shop import jobs
from tests.browser.test_admin_browser import _no_complaints, browsing, find
from tests.browser.test_admin_browser import _no_proxy as _no_proxy
from tests.helpers.gates import Gate, Started
from tests.helpers.gates import gate as gate
from tests.helpers.gates import start as start
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("browser")]

#: What is shown of a chain of three while the first, the second and the third job are half done.
HALVES = [("16", "counting 7/12", "running"), ("50", "ordering 7/12", "running"), ("83", "printing 7/12", "running")]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS_PER_ITEM", 0)


@pytest.fixture
def strict(settings: Any) -> None:
    """The page under a policy that allows nothing inline."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.browser.policy.with_policy"]


def shown(browser: Any) -> tuple[str | None, str, str]:
    bar = find(browser, ".jobqueue-progress progress")
    stage, state = (find(browser, f".jobqueue-{part}").text for part in ("stage", "state"))
    return bar.get_attribute("value"), stage, state


def restock(browser: Any, live_server: LiveServer) -> Worker:
    browser.get(live_server.url)
    find(browser, "form[action='/restock/'] button").click()
    find(browser, ".jobqueue-progress")
    return Worker()


def test_a_bar_moves_while_a_chain_of_three_jobs_runs(live_server: LiveServer, tmp_path: Path, strict: None) -> None:
    with browsing(tmp_path / "profile") as browser:
        worker = restock(browser, live_server)
        assert shown(browser) == ("0", "", "waiting")
        browser.execute_script("window.isTheSame = true")
        for percent in ("33", "66"):
            assert worker.work_once()
            wait_until(lambda p=percent: shown(browser)[0] == p, lambda: f"the bar moves: {shown(browser)}")
        assert worker.work_once()
        wait_until(lambda: shown(browser) == ("100", "printing 12/12", "done"), lambda: f"the end: {shown(browser)}")
        assert browser.execute_script("return window.isTheSame"), "the page was never loaded anew"
        assert find(browser, ".jobqueue-state").get_attribute("role") == "status"
        _no_complaints(browser)


def test_the_bar_moves_inside_of_each_job(
    live_server: LiveServer,
    tmp_path: Path,
    strict: None,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[..., Started],
) -> None:
    """Each of three jobs is held when it has said that it is half done."""
    halts, paused = [Gate() for _ in range(3)], count()

    def sleep(seconds: float) -> None:
        job, item = divmod(next(paused), jobs.ITEMS)
        if item == jobs.ITEMS // 2:
            halts[job].pass_through()

    monkeypatch.setattr(jobs, "sleep", sleep)
    with browsing(tmp_path / "profile") as browser:
        restock(browser, live_server)
        browser.execute_script("window.isTheSame = true")
        try:
            start(Worker(WorkerOptions.from_settings(stop_when_empty=True)))
            for halt, half in zip(halts, HALVES, strict=True):
                halt.wait_until_entered()
                wait_until(lambda half=half: shown(browser) == half, lambda: f"the bar moves: {shown(browser)}")
                halt.open()
        finally:
            for halt in halts:
                halt.open()
        wait_until(lambda: shown(browser) == ("100", "printing 12/12", "done"), lambda: f"the end: {shown(browser)}")
        assert browser.execute_script("return window.isTheSame"), "the page was never loaded anew"
        _no_complaints(browser)


def test_without_a_script_the_bar_is_true_each_time_the_page_is_loaded(live_server: LiveServer, tmp_path: Path) -> None:
    with browsing(tmp_path / "profile", script=False) as browser:
        worker = restock(browser, live_server)
        assert shown(browser) == ("0", "", "waiting")
        for percent, state in (("33", "waiting"), ("66", "waiting"), ("100", "done")):
            assert worker.work_once()
            browser.refresh()
            value, _stage, said = shown(browser)
            assert (value, said) == (percent, state)
