"""A million rows: every page asks few questions, and an index answers each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobqueue.models import FailedJob, Job
from tests.edges.pages import JOBS, LIST, MOST_QUERIES, OPERATE, person, text
from tests.edges.pages import _fresh_choices as _fresh_choices

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROWS = 1_000_000
BETWEEN = 3_600_000  # microseconds: they failed during the last 41 days

FAILED_SQL = f"""
INSERT INTO django_jobqueue_failedjob (
  job_id, connection, queue, name, payload, format, rank, metadata, masked, created_at, exception_class,
  exception_message, fingerprint, fingerprint_version, errors, attempts, retries, failed_at)
SELECT md5(n::text)::uuid, 'default', 'queue' || n % 5, 'shop.jobs.job' || n % 40, '{{"args":[],"kwargs":{{}}}}', 1, 0,
  '', '', moment, 'builtins.Error' || n % 10, 'it broke', md5((n % 97)::text), 1, '', 3, 0, moment
FROM (SELECT n, (extract(epoch FROM now()) * 1000000)::bigint - ({ROWS} - n) * {BETWEEN} AS moment
  FROM generate_series(1, {ROWS}::bigint) n) numbers
"""
JOB_SQL = f"""
INSERT INTO django_jobqueue_job (
  id, queue, name, payload, format, rank, state, ready_at, available_at, created_at, attempts, exceptions, crashes,
  retries, worker, alone, errors, metadata, masked)
SELECT md5(n::text)::uuid, 'queue' || n % 5, 'shop.jobs.job' || n % 40, '{{"args":[],"kwargs":{{}}}}', 1, 0,
  CASE WHEN n % 2 = 0 THEN 'ready' ELSE 'scheduled' END, n, n, n, 0, 0, 0, 0, '', FALSE, '', '', ''
FROM generate_series(1, {ROWS}) n
"""


@pytest.fixture
def million(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        for sql in (FAILED_SQL, JOB_SQL):
            cursor.execute(sql)
        cursor.execute("ANALYZE")
    yield
    # Else Django would delete row by row.
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_jobqueue_failedjob, django_jobqueue_job")


def plans(sql: str) -> list[dict[str, Any]]:
    """The nodes of a query's plan."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        (found,) = cursor.fetchone()
    found = json.loads(found) if isinstance(found, str) else found
    nodes, todo = [], [found[0]["Plan"]]
    while todo:
        node = todo.pop()
        nodes.append(node)
        todo += node.get("Plans", [])
    return nodes


def list_query(queries: list[dict[str, str]], table: str) -> str:
    (found,) = [
        query["sql"]
        for query in queries
        if re.search(rf'FROM "{table}"', query["sql"]) and "ORDER BY" in query["sql"] and "COUNT(" not in query["sql"]
    ]
    return found


def ask(client: Client, address: str, table: str) -> Any:
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(address)
        shown = text(answer)
    assert len(captured) <= MOST_QUERIES, address
    assert len(shown) < 300_000
    counts = [query["sql"] for query in captured if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert "LIMIT 10001" in counts[0]
    nodes = plans(list_query(captured.captured_queries, table))
    kinds = [node["Node Type"] for node in nodes]
    assert any(kind.startswith(("Index", "Bitmap Index")) for kind in kinds), (address, kinds)
    assert "Seq Scan" not in kinds, (address, kinds)
    return answer


@pytest.mark.usefixtures("million")
def test_a_million_rows() -> None:
    """F63"""
    client = person(*OPERATE)
    letter = FailedJob.objects.order_by("pk")[ROWS // 2]
    failed, waiting = FailedJob._meta.db_table, Job._meta.db_table
    for query in [
        "",
        "p=200",  # the last one
        "queue=queue3",
        "queue=gone",
        "name=shop.jobs.job7",
        "error=builtins.Error1",
        "queue=queue3&error=builtins.Error1&name=shop.jobs.job8",
        "when=hour",
        "when=older",
        "when=older&p=200",
        "o=1",
        "o=-1",
        "o=5",
        "o=-5",
        f"q={letter.pk}",
        f"q={letter.job_id}",
        "q=job17",
        "q=Error3",
    ]:
        ask(client, f"{LIST}?{query}", failed)
    answer = client.get(LIST)
    assert answer.context["cl"].paginator.num_pages == 200
    assert "More than 10000 failed jobs" in text(answer).replace(",", "")
    job = Job.objects.order_by("pk")[ROWS // 2]
    for query in ["", "p=200", "state=ready", "queue=queue3&state=scheduled", "state=reserved", f"q={job.pk}"]:
        ask(client, f"{JOBS}?{query}", waiting)
    for where in (f"{LIST}{letter.pk}/change/", f"{JOBS}{job.pk}/change/"):
        with CaptureQueriesContext(connection) as captured:
            text(client.get(where))
        assert len(captured) <= MOST_QUERIES
    data = {"action": "forget_selected", "_selected_action": [letter.pk], "select_across": "1"}
    with CaptureQueriesContext(connection) as captured:
        client.post(LIST, data)
    assert not any("DELETE" in query["sql"] for query in captured.captured_queries)
    assert FailedJob.objects.filter(pk=letter.pk).exists()
