"""Chunks: bounded in items and in bytes."""

from __future__ import annotations

from django_jobqueue.jobs.chunks import CHUNK_BYTES, CHUNK_ROWS, cut, settlement_bytes
from django_jobqueue.jobs.records import Complete, Fail, NewResult, Release, Reservation
from tests.drivers.contract import Clock, attempt, new


def sizes(*items: int) -> list[list[int]]:
    return list(cut(items, int))


def test_nothing_is_no_chunk() -> None:
    assert sizes() == []


def test_all_items_come_in_their_order() -> None:
    items = list(range(3 * CHUNK_ROWS + 1))
    assert [item for chunk in cut(items, lambda _: 1) for item in chunk] == items


def test_a_chunk_is_full_of_items() -> None:
    assert [len(chunk) for chunk in cut(range(2 * CHUNK_ROWS), lambda _: 0)] == [CHUNK_ROWS] * 2
    assert [len(chunk) for chunk in cut(range(CHUNK_ROWS + 1), lambda _: 0)] == [CHUNK_ROWS, 1]


def test_a_chunk_is_full_of_bytes() -> None:
    half = CHUNK_BYTES // 2
    assert sizes(half, half, 1, half, half) == [[half, half], [1, half], [half]]


def test_an_item_that_no_chunk_holds_is_alone() -> None:
    large = CHUNK_BYTES + 1
    assert sizes(large, 1, large, large) == [[large], [1], [large], [large]]


def test_an_end_takes_the_bytes_that_are_stored_because_of_it(clock: Clock) -> None:
    now, then = clock.now, new(payload="x" * 1000)
    held = Reservation(
        id=then.id,
        token=then.id,
        worker="w1",
        connection="default",
        queue="default",
        name="shop.work",
        payload="x" * 100,
        format=1,
        rank=0,
        attempt=1,
        max_attempts=None,
        exceptions=0,
        crashes=0,
        alone=True,
        ready_at=now,
        created_at=now,
        reserved_at=now,
        reserved_until=now,
    )
    result = NewResult(value="x" * 10, error="", started_at=now, finished_at=now, keep_for=60)
    assert settlement_bytes(Complete(held)) == settlement_bytes(Release(held, 0, attempt())) == 0
    assert settlement_bytes(Complete(held, (), result)) == 110
    assert settlement_bytes(Complete(held, (then,), result)) == 1110
    assert settlement_bytes(Fail(held, attempt(), (then, then))) == 2100
