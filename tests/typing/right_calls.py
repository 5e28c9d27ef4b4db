"""Calls as a user writes them, all right: ``tox -e typing`` has mypy and pyright read this file; nothing runs it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from django_jobqueue import (
    PREVIOUS,
    Dispatched,
    DispatchedBatch,
    DispatchedChain,
    Exponential,
    JobContext,
    adispatch,
    batch,
    chain,
    current_job,
    dispatch,
    dispatch_later,
    dispatch_many,
    get_batch,
    get_job,
    job,
    progress_token,
    using,
)
from django_jobqueue.dispatching.handler import Call, Handler


def pause(error: BaseException, attempt: int) -> float:
    return 2.0 * attempt


@job
def send_receipt(order_id: int) -> None: ...


@job()
def nothing_given(order_id: int) -> None: ...


@job(queue="mail", takes_context=True, retry_until=timedelta(hours=6))
def sync_stock(context: JobContext, order_id: int, email: str = "") -> str:
    return f"{context.id} {context.remaining()} {email}"


@job(queue="mail", takes_context=False)
def other(order_id: int, *, queue: str, delay: int = 0, job: str = "", self: str = "") -> int:
    return 1


@job(
    name="stock.import",
    priority=10,
    max_attempts=5,
    backoff=[10, 60, timedelta(minutes=5)],
    timeout=60,
    max_exceptions=3,
    retry_on=(OSError,),
    give_up_on=ValueError,
    atomic=True,
    settle="each",
    sensitive=("email",),
)
def import_stock(*paths: str, **options: bool) -> None: ...


@job(backoff=Exponential(base=1, cap=60), timeout=None)
def exponential() -> None: ...


@job(backoff=pause, timeout=timedelta(minutes=1))
def paused() -> None: ...


@job
async def fetch(url: str) -> bytes:
    return b""


@job(takes_context=True)
async def fetch_slowly(context: JobContext, url: str) -> bytes:
    return b""


# A handler is its function

assert_type(send_receipt(7), None)
assert_type(sync_stock(JobContext.__new__(JobContext), 7, email="a"), str)
assert_type(other(1, queue="x"), int)
plain: Callable[[int], None] = send_receipt
coroutine: Coroutine[Any, Any, bytes] = fetch("x")
typed: Handler[[int], [int], None] = send_receipt

# Its dispatches take what the function takes, without the context

assert_type(send_receipt.dispatch(7), Dispatched)
assert_type(send_receipt.dispatch(order_id=7).id, UUID)
assert_type(nothing_given.dispatch(7).stored, bool)
sync_stock.dispatch(7, email="a")
other.dispatch(1, queue="q", delay=3, job="x", self="y")
import_stock.dispatch("a", "b", dry=True)
exponential.dispatch()
paused.dispatch()
fetch.dispatch("x")
fetch_slowly.dispatch("x")

# using

send_receipt.using(delay=60).dispatch(7)
send_receipt.using(delay=timedelta(minutes=1), queue="low", priority=-5, metadata={"user": 7}).dispatch(7)
send_receipt.using(available_at=datetime(2030, 1, 1, tzinfo=UTC), connection="fast").dispatch(7)
send_receipt.using(delay=None).using(queue="low").dispatch(7)
send_receipt.using(after_commit=False).dispatch(7)
sync_stock.using(delay=60).dispatch(7, "a")
other.using(queue="low").dispatch(1, queue="q")

# The functions

assert_type(dispatch(send_receipt, 7), Dispatched)
dispatch(sync_stock.using(delay=60), 7, email="a")
dispatch(other, 1, queue="q", delay=3, job="x", self="y")
dispatch("shop.x", 1, job="x", self=2)
dispatch(using("shop.x", delay=60), 1)
assert_type(dispatch_later(5, sync_stock, 7), Dispatched)
dispatch_later(timedelta(minutes=5), send_receipt.using(queue="low"), 7)
dispatch_later(5.5, "shop.x", 1, delay=2)

# Calls

assert_type(send_receipt.s(7), Call)
assert_type(using("shop.x", queue="low").s(1, self=2), Call)
assert_type(dispatch_many(send_receipt.s(order_id) for order_id in (1, 2)), list[UUID])
dispatch_many([send_receipt.s(7), sync_stock.using(delay=60).s(7), using("shop.x").s()])
using("shop.x", delay=60, metadata={}).dispatch(1, 2, three=3)


async def ask() -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(await fetch.adispatch("x"), Dispatched)
    await send_receipt.using(delay=60).adispatch(7)
    await adispatch(sync_stock, 7, email="a")
    assert_type(await adispatch("shop.x", 1), Dispatched)
    await using("shop.x").adispatch(1)


# Looking

found = get_job(send_receipt.dispatch(7).id)
if found is not None:
    assert_type(found.state, str)
    assert_type(found.cancel(), bool)
get_job("01900000-0000-7000-8000-000000000000", connection="fast")

context = current_job()
if context is not None:
    assert_type(context.deadline, datetime | None)
    context.release(timedelta(seconds=5))


def flows() -> None:
    steps = chain(send_receipt.s(7), sync_stock.using(queue="low").s(PREVIOUS, email="a"), using("x").s())
    dispatched = steps.catch(other.s(PREVIOUS, queue="b")).dispatch()
    assert_type(dispatched, DispatchedChain)
    assert_type(dispatched.ids, tuple[UUID, ...])
    jobs = batch([send_receipt.s(7), steps], name="night", metadata={"a": 1}, allow_failures=True)
    assert_type(
        jobs.then(send_receipt.s(1)).catch(send_receipt.s(1)).finally_(send_receipt.s(1)).dispatch(), DispatchedBatch
    )
    chain(jobs, send_receipt.s(PREVIOUS)).dispatch()
    found = get_batch(jobs.dispatch().id)
    if found is not None:
        assert_type(found.add([send_receipt.s(8)]), list[UUID])
        assert_type(found.percent, int)
    assert_type(progress_token(dispatched), str)
    assert_type(progress_token(dispatched.ids), str)


def results(job_id: UUID) -> None:
    found = get_job(job_id)
    if found is not None and (ended := found.wait(timeout=timedelta(seconds=1))) is not None:
        assert_type(ended.result_error, str)
        if ended.progress is not None:
            assert_type(ended.progress.percent, int | None)
