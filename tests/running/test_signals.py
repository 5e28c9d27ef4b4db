"""Each signal is sent with what the page of signals says, whatever its cause and its store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import batch, current_job, get_job
from django_jobqueue.conf import get_settings
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.operations import failed_jobs
from django_jobqueue.running.options import WorkerStats
from django_jobqueue.running.rescuing import rescue
from django_jobqueue.running.worker import Worker
from tests.docs.test_docs import all_signals, page, sections
from tests.helpers.listening import Heard
from tests.helpers.redis import REDIS, entry, wipe

TYPES: dict[str, type | tuple[type, ...]] = {
    "id": UUID,
    "attempt": int,
    "max_attempts": int,
    "waited": float,
    "elapsed": float,
    "dead_lettered": bool,
    "delay": (float, type(None)),
    "total": int,
    "done": int,
    "failed": int,
    "cancelled": int,
    "queues": list,
    "stats": WorkerStats,
}


@pytest.fixture(params=["memory", pytest.param("database", marks=pytest.mark.django_db(transaction=True)), REDIS])
def store(request: pytest.FixtureRequest, settings: Any) -> Iterator[Driver]:
    options = entry() if request.param == "redis" else {"DRIVER": request.param}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": options}, "BACKOFF": 0}
    yield connections["default"]
    if request.param == "redis":
        wipe(connections["default"])


def documented() -> dict[str, set[str]]:
    """The arguments of each signal, by the two tables of the page; the second says what stands for several."""
    text = sections(page("reference/signals.md"))["Signals"]
    short = dict(re.findall(r"^\| \*(\w+)\* \| (.*) \|$", text, flags=re.MULTILINE))

    def arguments(cell: str) -> set[str]:
        shortened = {name for word in re.findall(r"\*(\w+)\*", cell) for name in arguments(short[word])}
        return shortened | set(re.findall(r"`(\w+)`", cell.partition("(")[0] + cell.partition(")")[2]))

    rows = re.findall(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", text, flags=re.MULTILINE)
    return {name: arguments(cell) for name, cell in rows if name in all_signals()}


def all_that_happens(store: Driver, register: Callable[..., Any], make_worker: Callable[..., Worker]) -> None:
    """Everything that can become of a job, a batch and a worker."""

    @register(max_attempts=2)
    def work(mode: str = "") -> None:
        job = current_job()
        assert job is not None
        if mode == "fail":
            raise ValueError
        if mode == "lose":
            rescue(store, 3, datetime.now(UTC) + timedelta(hours=1))
        if mode == "release":
            job.release(3600)

    for mode in ("", "fail", "release", "lose"):
        work.dispatch(mode)
    batch([work.s()]).dispatch()
    cancelled = get_job(work.using(delay=3600).dispatch().id)
    assert cancelled is not None
    assert cancelled.cancel()
    make_worker(stop_when_empty=True).run()
    failed_jobs.retry(failed_jobs.newest())


def test_every_signal_has_the_arguments_that_its_page_names(
    store: Driver, register: Callable[..., Any], make_worker: Callable[..., Worker], heard: Heard
) -> None:
    all_that_happens(store, register, make_worker)
    told = documented()
    assert told.keys() == all_signals() == {name for name, _ in heard.sent}
    failures = {(sent["exception_class"].rpartition(".")[2], sent["dead_lettered"]) for sent in heard.all("job_failed")}
    assert failures == {(error, is_last) for error in ("ValueError", "ReservationLost") for is_last in (True, False)}
    configured = get_settings().connections["default"]["DRIVER"]
    for name, sent in heard.sent:
        assert sent.keys() - {"sender"} == told[name], name
        wrong = {key: value for key, value in sent.items() if not isinstance(value, TYPES.get(key, (str, type)))}
        assert not wrong, name
        if not name.startswith("worker_"):
            assert (sent["sender"], sent["connection"], sent["driver"]) == (type(store), "default", configured)
