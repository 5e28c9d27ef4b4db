"""A person at a browser works off a failed job, with and without JavaScript."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from django_jobqueue.models import FailedJob, Job
from tests.conftest import REQUIRE_SERVICES
from tests.edges.commands import dead_letter, dead_letters
from tests.edges.pages import JOBS, LIST, history, page, waiting_job
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("browser")]

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--window-size=1280,1000",
)
DEADLINE = 30
#: A folder to keep the pictures in, for a person to look at.
SCREENSHOTS = "JOBQUEUE_SCREENSHOTS"
EXAMPLE_PAYLOAD = '{"args":[],"kwargs":{"sku":42,"email":"anna@example.com","sizes":[1,2],"token":"s3cr3t"}}'
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/stock.py", line 88, in push
    response = client.post(url, timeout=30)
requests.exceptions.Timeout: api.example timed out after 30s"""


def _missing(complaint: str) -> None:
    if REQUIRE_SERVICES:
        pytest.fail(complaint)
    pytest.skip(complaint)


@contextmanager
def browsing(profile: Path, *, script: bool = True) -> Iterator[Any]:
    """A new Chromium, with a profile of its own."""
    try:
        from selenium import webdriver
    except ImportError:
        _missing("selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        _missing("chromium or chromedriver is not on PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    if not script:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=chromedriver))
    try:
        browser.implicitly_wait(DEADLINE)
        browser.set_page_load_timeout(DEADLINE)
        yield browser
    finally:
        browser.quit()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def picture(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any, str], None]:
    """Keep a page as a picture, in the light and in the dark."""
    folder = Path(os.environ.get(SCREENSHOTS) or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(browser: Any, name: str) -> None:
        for scheme in ("dark", "light"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            file = folder / f"{name}-{scheme}.png"
            time.sleep(0.5)  # the admin's colours change gradually
            browser.save_screenshot(str(file))
            assert file.stat().st_size > 5_000

    return take


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def leave_by(browser: Any, element: Any) -> None:
    """Click, and wait until the page is another: what is looked for then may have been on this one too."""
    from selenium.webdriver.support.expected_conditions import staleness_of
    from selenium.webdriver.support.wait import WebDriverWait

    this_page = find(browser, "html")
    element.click()
    WebDriverWait(browser, DEADLINE).until(staleness_of(this_page))


def open_row(browser: Any, letter: FailedJob) -> None:
    find(browser, f"#result_list a[href*='{page(letter)}']").click()


def log_in(browser: Any, server: LiveServer, path: str) -> None:
    """Go somewhere, meet the login, and arrive."""
    User.objects.create_superuser("anna", password="correct horse")
    browser.get(f"{server.url}{path}")
    find(browser, "#id_username").send_keys("anna")
    find(browser, "#id_password").send_keys("correct horse")
    find(browser, "[type=submit]").click()
    find(browser, "#user-tools")
    assert browser.current_url == f"{server.url}{path}"


def example() -> FailedJob:
    return dead_letter(
        "edges.succeed",
        queue="mail",
        payload=EXAMPLE_PAYLOAD,
        masked='[["kwargs","token"]]',
        metadata='{"request":"4be1"}',
        exception_class="requests.exceptions.Timeout",
        exception_message="api.example timed out after 30s",
        errors=history(message="api.example timed out after 30s", traceback=TRACEBACK),
    )


def test_a_person_retries_a_failed_job(
    live_server: LiveServer, tmp_path: Path, picture: Callable[[Any, str], None]
) -> None:
    dead_letters(3, "shop.jobs.removed")
    letter = example()
    with browsing(tmp_path / "profile") as browser:
        log_in(browser, live_server, LIST)
        assert "Failed jobs" in browser.title
        picture(browser, "failed-jobs")
        open_row(browser, letter)
        assert find(browser, ".jobqueue-facts").text.startswith("State ✖ failed for good")
        assert "s3cr3t" not in browser.page_source
        picture(browser, "failed-job")
        browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
        picture(browser, "failed-job-end")
        find(browser, ".jobqueue-tool button").click()
        message = find(browser, ".messagelist .success").text
        assert message == (
            f"The failed job #{letter.pk} (edges.succeed) was retried: it is back on the queue “mail”. See the job."
        )
        assert browser.current_url == f"{live_server.url}{LIST}"
        picture(browser, "retried")
        find(browser, ".messagelist a").click()
        assert str(letter.job_id) in find(browser, ".jobqueue-facts").text
        picture(browser, "job")
        _no_complaints(browser)
    assert Job.objects.get().pk == letter.job_id


def test_a_person_forgets_failed_jobs(
    live_server: LiveServer, tmp_path: Path, picture: Callable[[Any, str], None]
) -> None:
    dead_letters(60, "shop.jobs.removed")
    letter = example()
    with browsing(tmp_path / "profile") as browser:
        log_in(browser, live_server, page(letter))
        browser.find_element("link text", "FORGET…").click()
        assert "cannot be undone" in find(browser, "#content").text
        picture(browser, "forget")
        find(browser, ".deletelink-button").click()
        assert "was forgotten" in find(browser, ".messagelist .success").text
        find(browser, "#action-toggle").click()
        assert find(browser, ".action-counter").text == "50 of 50 selected"
        find(browser, "select[name=action] option[value=forget_selected]").click()
        leave_by(browser, find(browser, ".actions button"))
        assert find(browser, ".messagelist .success").text == "Forgot 50 failed jobs."
        _no_complaints(browser)
    assert FailedJob.objects.count() == 10


def test_everything_works_without_javascript(live_server: LiveServer, tmp_path: Path) -> None:
    first, second = example(), dead_letter("shop.jobs.removed")
    with browsing(tmp_path / "profile", script=False) as browser:
        log_in(browser, live_server, LIST)
        open_row(browser, first)
        find(browser, ".jobqueue-tool button").click()
        assert "was retried" in find(browser, ".messagelist .success").text
        open_row(browser, second)
        assert "No handler has the name" in find(browser, ".jobqueue-warning").text
        browser.find_element("link text", "FORGET…").click()
        leave_by(browser, find(browser, ".cancel-link"))
        assert browser.current_url == f"{live_server.url}{page(second)}"
    assert Job.objects.get().pk == first.job_id
    assert FailedJob.objects.get() == second


def test_lists_on_a_small_screen(
    live_server: LiveServer, tmp_path: Path, picture: Callable[[Any, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_jobqueue.admin.base.MAX_COUNTED", 55)
    example()
    dead_letters(60, "shop.jobs.removed", exception_message="a long text " * 40)

    waiting_job(
        "edges.succeed", available_at=datetime(2020, 1, 1, tzinfo=UTC), ready_at=datetime(2020, 1, 1, tzinfo=UTC)
    )
    waiting_job("edges.succeed", state="reserved", worker="web1:48213:abcdef01", attempts=1)
    with browsing(tmp_path / "profile") as browser:
        log_in(browser, live_server, JOBS)
        assert "late" in find(browser, "#result_list").text
        picture(browser, "jobs")
        browser.get(f"{live_server.url}{LIST}")
        note = find(browser, ".jobqueue-capped")
        assert note.text == "More than 55 failed jobs: use a filter or the search to reach others."
        browser.execute_script("arguments[0].scrollIntoView()", note)
        picture(browser, "capped")
        browser.set_window_size(500, 900)
        browser.get(f"{live_server.url}{page(FailedJob.objects.earliest('pk'))}")
        picture(browser, "small")
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        _no_complaints(browser)


def _no_complaints(browser: Any) -> None:
    """Nothing in the browser's console: no missing file, no script error."""
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [message for message in severe if "/favicon.ico" not in message] == []
