"""The pages of workers: who is there, and since when nothing was heard of whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.edges.pages import MOST_QUERIES, NASTY, WORKERS, person, text, working

pytestmark = pytest.mark.django_db


def test_the_state_is_the_age_of_the_heartbeat() -> None:
    now = datetime.now(UTC)
    for name, seconds in (("fresh", 0), ("slow", 45), ("dead", 3000)):
        working(name=name, heartbeat_at=now - timedelta(seconds=seconds))
    shown = text(person("view_worker").get(WORKERS))
    for word in ("alive", "▲ late", "✖ lost"):
        assert shown.count(f"{word}<") == 1, word


def test_a_list_of_many_workers_takes_few_queries(django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        working(pid=number)
    client = person("view_worker")
    with django_assert_max_num_queries(MOST_QUERIES):
        assert "web-1:19" in text(client.get(WORKERS))


def test_the_page_of_one_worker_says_all_that_is_known() -> None:
    row = working(queues="*", memory=50 * 1024 * 1024, processed=12, is_embedded=True)
    shown = text(person("view_worker").get(f"{WORKERS}{row.pk}/change/"))
    for part in (str(row.pk), "every queue", "50.0\xa0MB", "<td>12</td>", "<td>yes</td>", "0.1.0"):
        assert part in shown, part


def test_names_are_escaped() -> None:
    row = working(name=NASTY[:80], host=NASTY[:80], queues=NASTY, version=NASTY[:50])
    client = person("view_worker")
    for where in (WORKERS, f"{WORKERS}{row.pk}/change/"):
        assert "<script>alert" not in text(client.get(where))


def test_an_id_that_is_none_is_no_error() -> None:
    assert person("view_worker").get(f"{WORKERS}nobody/change/").status_code == 302
