"""``queue_prune``, and workers that prune by themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue.models import FailedJob, Worker
from tests.edges.commands import dead_letter, run
from tests.edges.pages import working

pytestmark = pytest.mark.django_db(transaction=True)


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


@pytest.fixture
def some_rows() -> None:
    for days in (1, 40, 50, 60):
        dead_letter(failed_at=ago(days=days))
    working()
    working(heartbeat_at=ago(hours=2))


def left() -> tuple[int, int]:
    return FailedJob.objects.count(), Worker.objects.count()


@pytest.mark.usefixtures("some_rows")
def test_by_the_settings_it_deletes_no_dead_letters() -> None:
    ran = run("queue_prune")
    assert (ran.code, ran.lines) == (0, ["what=workers status=deleted count=1"])
    assert left() == (4, 1)


@pytest.mark.usefixtures("some_rows")
def test_the_setting_says_how_old(settings: Any) -> None:
    settings.JOBQUEUE = {"PRUNE": {"FAILED": timedelta(days=45), "WORKERS": None}}
    assert run("queue_prune", "--json").records == [{"what": "failed", "status": "deleted", "count": 2}]
    assert left() == (2, 2)


@pytest.mark.usefixtures("some_rows")
@pytest.mark.parametrize("age", ["30d", "720h", "43200m", "2592000", "2592000s", 30 * 86_400])
def test_a_flag_says_it_for_its_kind_and_no_other_is_touched(age: object) -> None:
    assert run("queue_prune", failed=age).lines == ["what=failed status=deleted count=3"]
    assert left() == (1, 2)


@pytest.mark.usefixtures("some_rows")
def test_it_deletes_in_small_steps() -> None:
    assert run("queue_prune", "--failed", "30d", "--chunk", "1").lines == ["what=failed status=deleted count=3"]


@pytest.mark.usefixtures("some_rows")
def test_it_can_be_asked_what_it_would_do() -> None:
    ran = run("queue_prune", "--failed", "30d", "--workers", "1h", "--dry-run")
    assert ran.lines == [
        "what=failed status=would_be_deleted count=3",
        "what=workers status=would_be_deleted count=1",
    ]
    assert left() == (4, 2)


@pytest.mark.usefixtures("some_rows")
def test_on_a_terminal_it_says_it_in_words() -> None:
    assert run("queue_prune", "--workers", "1h", terminal=True).out == "workers: 1 row deleted.\n"


@pytest.mark.parametrize("age", ["0", "soon", "-1d", "d", "1w", "nand", ""])
def test_what_is_no_age_is_a_usage_error(age: str) -> None:
    ran = run("queue_prune", f"--failed={age}")
    assert ran.code == 2
    assert "--failed" in ran.error
