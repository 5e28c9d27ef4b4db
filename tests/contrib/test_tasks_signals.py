"""Django's signals of tasks: by the backend's class, robustly, and the end once, when it is stored."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import JobTimeout
from django_jobqueue.drivers import Driver
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.operations.lookup import cancel
from django_jobqueue.running.worker import Worker
from tests.contrib.names import JobQueueBackend, Status, compat, running, tasks
from tests.drivers.contract import Clock

Sent = list[tuple[str, Any, Any, Any]]


@pytest.fixture
def sent() -> Iterator[Sent]:
    """Each signal: its name, sender, the status of the result then, and the class of the error that is handled."""
    sent: Sent = []
    connected = []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receive(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
            sent.append((name, sender, task_result.status, sys.exc_info()[0]))

        signal = getattr(compat, name)
        signal.connect(receive, weak=False)
        connected.append((signal, receive))
    yield sent
    for signal, receive in connected:
        signal.disconnect(receive)


def brief(sent: Sent) -> list[tuple[str, Any, Any]]:
    assert all(sender is JobQueueBackend for _, sender, _, _ in sent)
    return [(name, status, error) for name, _, status, error in sent]


def test_a_task_that_succeeds_sends_each_signal_once(driver: Driver, use: Any, worker: Worker, sent: Sent) -> None:
    use().add.enqueue(1)
    worker.work_once()
    assert brief(sent) == [
        ("task_enqueued", Status.READY, None),
        ("task_started", Status.RUNNING, None),
        ("task_finished", Status.SUCCESSFUL, None),
    ]


def test_a_task_that_fails_is_finished_after_its_last_attempt_with_the_error_at_hand(
    board: Any, use: Any, worker: Worker, clock: Clock, sent: Sent
) -> None:
    use(MAX_ATTEMPTS=2)
    board.fail.enqueue()
    worker.work_once(now=clock.tick(3600))
    worker.work_once(now=clock.tick(3600))
    assert brief(sent)[1:] == [
        ("task_started", Status.RUNNING, None),
        ("task_started", Status.RUNNING, None),
        ("task_finished", Status.FAILED, KeyError),
    ]


@pytest.mark.parametrize("name", ["never_end", "never_end_either"])
def test_a_task_that_takes_too_long_is_finished_with_a_timeout(
    board: Any, use: Any, worker: Worker, sent: Sent, name: str
) -> None:
    use(MAX_ATTEMPTS=1, TIMEOUT=0.05)
    task = getattr(board, name)
    result = task.enqueue()
    worker.work_once()
    assert brief(sent)[-1] == ("task_finished", Status.FAILED, JobTimeout)
    assert [error.exception_class for error in task.get_result(result.id).errors] == [JobTimeout]


def test_the_end_was_stored_when_it_is_told(board: Any, worker: Worker) -> None:
    stored = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        task_result.refresh()
        stored.append((task_result.status, task_result.return_value))

    board.add.enqueue(2)
    compat.task_finished.connect(receive)
    try:
        worker.work_once()
    finally:
        compat.task_finished.disconnect(receive)
    assert stored == [(Status.SUCCESSFUL, 2)]


def test_the_result_that_is_told_is_that_of_the_store(board: Any, use: Any, worker: Worker, clock: Clock) -> None:
    use(MAX_ATTEMPTS=2)
    told = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        told.append(task_result)

    compat.task_finished.connect(receive)
    try:
        result = board.fail.enqueue()
        worker.work_once(now=clock.tick(3600))
        worker.work_once(now=clock.tick(3600))
    finally:
        compat.task_finished.disconnect(receive)
    found = board.fail.get_result(result.id)
    assert (told[0].errors, told[0].worker_ids) == (found.errors, found.worker_ids)
    assert told[0].finished_at is not None


@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
def test_a_receiver_that_raises_changes_nothing(board: Any, worker: Worker, name: str, caplog: Any) -> None:
    def receive(**kwargs: Any) -> None:
        raise RuntimeError("receiver")

    signal = getattr(compat, name)
    signal.connect(receive)
    try:
        result = board.add.enqueue(1)
        assert worker.work_once()
    finally:
        signal.disconnect(receive)
    assert board.add.get_result(result.id).status == Status.SUCCESSFUL


def test_a_task_whose_worker_was_lost_is_finished_once(
    driver: Driver, use: Any, worker: Worker, clock: Clock, sent: Sent
) -> None:
    use(MAX_ATTEMPTS=1).add.enqueue(1)
    driver.reserve("default", "lost:1", ReserveLimit(rows=1, max_attempts=1), retry_after=30, now=clock.now)
    worker.work_once(now=clock.tick(60))
    [_, (name, status, error)] = brief(sent)
    assert (name, status) == ("task_finished", Status.FAILED)
    assert error is not None


def test_a_task_that_was_taken_away_is_not_finished(
    driver: Driver, use: Any, worker: Worker, clock: Clock, sent: Sent
) -> None:
    board = use()

    class Thief(list[Any]):
        def append(self, result: Any) -> None:
            driver.rescue(max_attempts=3, now=clock.tick(1000))

    board.seen, kept = Thief(), board.seen
    try:
        board.look.enqueue()
        worker.work_once(now=clock.now)
    finally:
        board.seen = kept
    assert "task_finished" not in [name for name, *_ in sent]
    assert not running._running


def test_a_task_that_was_cancelled_is_not_finished(board: Any, sent: Sent) -> None:
    result = board.add.enqueue(1)
    assert cancel(UUID(result.id), connection="default")
    assert brief(sent) == [("task_enqueued", Status.READY, None)]


def test_a_log_of_djangos_own_tells_the_error_and_no_secret(
    board: Any, use: Any, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    use(MAX_ATTEMPTS=1)
    board.fail.enqueue("no stock")
    board.fail.enqueue("no stock", token="hunter2-hunter2")
    logger = tasks.__name__
    with caplog.at_level(logging.ERROR, logger):
        while worker.work_once():
            pass
    first, second = [record for record in caplog.records if record.name == logger and record.levelno == logging.ERROR]
    assert first.exc_info is not None
    assert first.exc_info[0] is KeyError
    assert second.exc_info is not None
    assert "no stock" in str(second.exc_info[1])
    assert "hunter2" not in caplog.text
