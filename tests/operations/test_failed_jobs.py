"""Dead letters: finding one, walking all, retrying and forgetting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import AlreadyRetried, InvalidOption, UnknownJob, get_job
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.jobs.records import FailedSummary
from django_jobqueue.operations import failed_jobs
from django_jobqueue.running.worker import Worker
from tests.drivers.contract import Clock, Store, new
from tests.helpers.listening import Heard
from tests.helpers.threads import in_threads

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


@pytest.fixture
def store(driver: Driver, clock: Clock) -> Store:
    return Store(driver, clock)


@pytest.fixture
def work(register: Register) -> Any:
    """The handler of the dead letters of these tests."""

    @register()
    def work() -> None: ...

    return work


def bury(store: Store, count: int = 1, **changes: Any) -> list[FailedSummary]:
    return store.bury(*(new(**{"name": "tests.work", **changes}) for _ in range(count)))


# Finding one


def test_a_dead_letter_is_found_by_its_number(store: Store) -> None:
    _, letter, _ = bury(store, 3)
    assert failed_jobs.find(str(letter.number)) == letter
    assert failed_jobs.find("0" + str(letter.number)) == letter


def test_a_dead_letter_is_found_by_its_uuid(store: Store) -> None:
    _, letter, _ = bury(store, 3)
    for reference in (str(letter.id), str(letter.id).upper(), letter.id.hex):
        assert failed_jobs.find(reference) == letter


@pytest.mark.parametrize("length", [6, 8, 12, 30])
def test_a_dead_letter_is_found_by_a_unique_ending(store: Store, length: int) -> None:
    ids = [UUID(f"01900000-0000-7000-8000-{number:06x}abcde{number:x}") for number in range(1, 6)]
    bury_ids(store, ids)
    letter = failed_jobs.find(str(ids[2])[-length:])
    assert letter is not None
    assert letter.id == ids[2]
    shouted = failed_jobs.find(str(ids[2])[-length:].upper())
    assert shouted == letter


def bury_ids(store: Store, ids: list[UUID]) -> None:
    for job_id in ids:
        bury(store, id=job_id)


def test_digits_only_are_always_a_number(store: Store) -> None:
    """Also where a UUID ends with them."""
    bury_ids(store, [UUID("01900000-0000-7000-8000-000012345678")])
    assert failed_jobs.find("12345678") is None
    found = failed_jobs.find("-000012345678")
    assert found is not None


@pytest.mark.parametrize(
    "reference", ["0", "99", "9" * 18, "9" * 30, "9" * 5000, "01900000-0000-7000-8000-0000000000ff", "abcdef"]
)
def test_what_is_not_there_is_none(store: Store, reference: str) -> None:
    bury(store)
    assert failed_jobs.find(reference) is None


@pytest.mark.parametrize(
    "reference", ["", "abc", "-----a", "send_receipt", "zzzzzzzz", "%______", "a' OR 1", "٣٤٥", "1.5"]
)
def test_what_can_be_no_reference_is_refused(memory: Driver, reference: str) -> None:
    with pytest.raises(InvalidOption, match="give its number, its UUID, or at least 6 characters"):
        failed_jobs.find(reference)


def test_an_ending_that_several_share_is_refused_with_all_of_them(store: Store) -> None:
    ids = [UUID(f"01900000-0000-7000-8000-0000{number}0abcdef") for number in range(1, 4)]
    bury_ids(store, ids)
    with pytest.raises(InvalidOption, match="may be any of") as caught:
        failed_jobs.find("abcdef")
    assert all(str(job_id) in str(caught.value) for job_id in ids)
    assert failed_jobs.find("20abcdef") is not None


def test_a_number_that_two_connections_share_is_refused_unless_one_is_named(settings: Any, clock: Clock) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}}}
    one, two = (bury(Store(connections[alias], clock))[0] for alias in ("default", "fast"))
    assert one.number == two.number
    with pytest.raises(InvalidOption, match=r"on default.*on fast"):
        failed_jobs.find(str(one.number))
    assert failed_jobs.find(str(one.number), connection="fast") == two
    assert failed_jobs.find(str(two.id)) == two


# Walking all


def numbers(pages: Any) -> list[list[int]]:
    return [[letter.number for letter in page] for page in pages]


def test_all_dead_letters_come_in_pages_by_number(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_jobs, "PAGE", 3)
    letters = bury(store, 7)
    pages = numbers(failed_jobs.every())
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [number for page in pages for number in page] == [letter.number for letter in letters]


def test_the_set_is_frozen_when_the_walk_is_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails later is not among it, whether it fails before the first page is read or during the walk."""
    monkeypatch.setattr(failed_jobs, "PAGE", 2)
    letters = bury(store, 3)
    pages = failed_jobs.every()
    bury(store)
    found = [next(pages)]
    bury(store)
    found += pages
    assert [letter.number for page in found for letter in page] == [letter.number for letter in letters]


def test_a_walk_copes_with_dead_letters_that_vanish(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_jobs, "PAGE", 2)
    letters = bury(store, 5)
    seen = []
    for page in failed_jobs.every():
        seen += [letter.number for letter in page]
        failed_jobs.forget(page)
        failed_jobs.forget([letters[3]])
    assert seen == [letters[0].number, letters[1].number, letters[2].number, letters[4].number]
    assert failed_jobs.count() == 0


def test_a_walk_can_be_of_one_queue_or_connection(settings: Any, clock: Clock) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "memory"}, "fast": {"DRIVER": "memory"}}}
    default, fast = (Store(connections[alias], clock) for alias in ("default", "fast"))
    bury(default, 2)
    bury(default, 1, queue="mail")
    bury(fast, 1, queue="mail")
    assert sum(map(len, failed_jobs.every())) == failed_jobs.count() == 4
    assert sum(map(len, failed_jobs.every(queue="mail"))) == failed_jobs.count(queue="mail") == 2
    assert sum(map(len, failed_jobs.every(connection="default"))) == failed_jobs.count(connection="default") == 3
    assert failed_jobs.count(connection="fast", queue="default") == 0


def test_a_walk_takes_one_query_a_page(database: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    monkeypatch.setattr(failed_jobs, "PAGE", 5)
    bury(Store(database, clock), 20)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert sum(map(len, failed_jobs.every())) == 20
    assert len(queries) == 1 + 4 + 1


def test_the_newest_come_first(store: Store, clock: Clock) -> None:
    letters = []
    for _ in range(4):
        letters += bury(store)
        clock.tick()
    assert [letter.number for letter in failed_jobs.newest(limit=3)] == [
        letter.number for letter in reversed(letters[1:])
    ]


# Retrying


def test_a_retried_job_is_ready_with_its_id_and_no_attempt_used(
    store: Store, work: Any, clock: Clock, heard: Heard
) -> None:
    letter, other = bury(store, 2, queue="mail")
    (result,) = failed_jobs.retry([letter])
    assert (result.letter, result.status) == (letter, "retried")
    job = get_job(letter.id)
    assert job is not None
    assert (job.state, job.attempts, job.queue, len(job.errors)) == ("ready", 0, "mail", 1)
    assert failed_jobs.find(str(other.number)) == other
    assert heard.one("job_retried") == {
        "id": letter.id,
        "name": "tests.work",
        "queue": "mail",
        "connection": "default",
        "driver": store.driver.name,
        "sender": type(store.driver),
    }


def test_a_retried_job_runs(store: Store, worker: Worker, register: Register) -> None:
    seen: list[Any] = []

    @register(max_attempts=1)
    def work(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise ValueError

    job_id = work.dispatch(7).id
    worker.work_once()
    (letter,) = next(failed_jobs.every())
    failed_jobs.retry_one(letter)
    worker.work_once()
    assert seen == [7, 7]
    assert get_job(job_id) is None


def test_the_limit_in_time_begins_anew_by_the_definition_of_now(store: Store, register: Register, clock: Clock) -> None:
    @register(retry_until=600)
    def work() -> None: ...

    (letter,) = bury(store, retry_for=1)
    failed_jobs.retry([letter])
    (reservation,) = store.driver.reserve("default", "w", limit_of_one(), retry_after=90).jobs
    assert reservation.retry_until is not None
    left = (reservation.retry_until - datetime.now(UTC)).total_seconds()
    assert 500 < left <= 601


def limit_of_one() -> Any:
    from django_jobqueue.jobs.records import ReserveLimit

    return ReserveLimit(rows=1, max_attempts=3)


def test_results_come_in_the_order_of_the_letters(store: Store, work: Any) -> None:
    letters = bury(store, 4)
    letters[1:1] = bury(store, 1, name="tests.unknown")
    failed_jobs.forget([letters[2]])
    results = failed_jobs.retry(reversed(letters))
    assert [result.letter for result in results] == list(reversed(letters))
    assert [result.status for result in results] == ["retried", "retried", "gone", "unknown job", "retried"]


def test_a_job_without_a_handler_is_refused_and_stays(store: Store, work: Any, heard: Heard) -> None:
    """F84: the others are retried."""
    known, unknown = bury(store), bury(store, name="tests.removed")
    more = bury(store)
    results = failed_jobs.retry([*known, *unknown, *more])
    assert [result.status for result in results] == ["retried", "unknown job", "retried"]
    assert failed_jobs.find(str(unknown[0].number)) == unknown[0]
    assert len(heard.all("job_retried")) == 2
    with pytest.raises(UnknownJob, match=r"'tests\.removed'.*it stays"):
        failed_jobs.retry_one(unknown[0])
    assert [result.status for result in failed_jobs.forget(unknown)] == ["forgotten"]


def test_a_retry_of_what_is_gone_says_so(store: Store, work: Any, heard: Heard) -> None:
    (letter,) = bury(store)
    failed_jobs.retry_one(letter)
    with pytest.raises(AlreadyRetried, match="already retried, or forgotten"):
        failed_jobs.retry_one(letter)
    assert len(heard.all("job_retried")) == 1


def test_two_people_who_retry_at_once_make_one_job(store: Store, work: Any) -> None:
    """F15"""
    letters = bury(store, 20)
    found = in_threads(2, lambda _: [result.status for result in failed_jobs.retry(letters)])
    assert sorted(chain.from_iterable(found)) == ["gone"] * 20 + ["retried"] * 20
    assert len(store.driver.peek("default", limit=100)) == 20
    assert failed_jobs.count() == 0


def test_two_people_who_retry_all_at_once_make_each_job_once(
    store: Store, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15"""
    monkeypatch.setattr(failed_jobs, "PAGE", 7)
    bury(store, 20)

    def retry_all(_: int) -> int:
        return sum(result.status == "retried" for page in failed_jobs.every() for result in failed_jobs.retry(page))

    assert sum(in_threads(2, retry_all)) == 20
    assert len({record.id for record in store.driver.peek("default", limit=100)}) == 20


def test_a_retry_that_fails_half_way_moves_nothing(
    database: Driver, clock: Clock, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15 b"""
    from django.db import DatabaseError
    from django.db.models.query import QuerySet

    letters = bury(Store(database, clock), 3)

    def err(self: Any) -> Any:
        raise DatabaseError("no")

    monkeypatch.setattr(QuerySet, "delete", err)
    with pytest.raises(DatabaseError):
        failed_jobs.retry(letters)
    monkeypatch.undo()
    assert failed_jobs.count() == 3
    assert database.peek("default", limit=9) == []


# Forgetting


def test_a_forgotten_job_is_gone(store: Store) -> None:
    letter, other = bury(store, 2)
    assert [result.status for result in failed_jobs.forget([letter, letter])][:1] == ["forgotten"]
    assert get_job(letter.id) is None
    assert failed_jobs.find(str(other.number)) == other
    assert [result.status for result in failed_jobs.forget([letter])] == ["gone"]


def test_two_people_who_forget_all_at_once_are_done_without_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F17"""
    monkeypatch.setattr(failed_jobs, "PAGE", 20)
    bury(store, 60)

    def forget_all(_: int) -> int:
        return sum(result.status == "forgotten" for page in failed_jobs.every() for result in failed_jobs.forget(page))

    assert sum(in_threads(2, forget_all)) == 60
    assert failed_jobs.count() == 0


def test_retrying_and_forgetting_at_once_does_one_of_both(store: Store, work: Any) -> None:
    letters = bury(store, 20)

    def act(number: int) -> list[str]:
        return [result.status for result in (failed_jobs.retry, failed_jobs.forget)[number](letters)]

    found = list(chain.from_iterable(in_threads(2, act)))
    assert found.count("gone") == 20
    assert found.count("retried") == len(store.driver.peek("default", limit=100))
    assert failed_jobs.count() == 0
