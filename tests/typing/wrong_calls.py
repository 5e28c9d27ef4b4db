"""Calls that are wrong, each reported by both checkers: one that is not is an unused "ignore", which is an error too.

``type: ignore`` is mypy's alone, and ``pyright: ignore`` is pyright's.
"""

from __future__ import annotations

from django_jobqueue import JobContext, adispatch, dispatch, dispatch_later, dispatch_many, get_job, job, using


@job
def send_receipt(order_id: int) -> None: ...


@job(queue="mail", takes_context=True)
def sync_stock(context: JobContext, order_id: int, email: str = "") -> str:
    return ""


@job
async def fetch(url: str) -> bytes:
    return b""


# The arguments of a dispatch

send_receipt.dispatch("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
send_receipt.dispatch()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
send_receipt.dispatch(1, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
send_receipt.dispatch(order=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
send_receipt.using(delay=60).dispatch()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
send_receipt.using(delay=60).dispatch("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sync_stock.dispatch(JobContext.__new__(JobContext), 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sync_stock.dispatch(7, email=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
send_receipt.s("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sync_stock.using(queue="low").s()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# A direct call

send_receipt("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sync_stock(7)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]

# The options of one dispatch

send_receipt.using(nope=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
send_receipt.using(delay="60")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
send_receipt.using(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
send_receipt.using(max_attempts=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
using("shop.x", nope=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
using(send_receipt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# The functions

dispatch(send_receipt, "x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch(send_receipt)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
dispatch(7, 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch(print, 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch_later(5, sync_stock, "7")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch_later("5", sync_stock, 7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch_later(sync_stock, 7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
dispatch_many([send_receipt])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
dispatch_many([send_receipt.dispatch(7)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
get_job(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def ask() -> None:
    await fetch.adispatch(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await adispatch(send_receipt, "x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await adispatch(fetch)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    text: str = await fetch("x")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert text


# @job


@job(queu="x")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
def typo() -> None: ...


@job(max_attempts="3")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
def wrong_type() -> None: ...


@job(settle="never")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
def wrong_word() -> None: ...


@job(backoff="10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def wrong_backoff() -> None: ...


@job(retry_on=[OSError])  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType]
def wrong_errors() -> None: ...


@job("receipts.send")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def name_by_position() -> None: ...


@job(takes_context=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def wrong_first(x: int) -> None: ...


@job(takes_context=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def no_first() -> None: ...


@job(takes_context=True)
def untyped(context, order_id): ...  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]


# A running job


def in_a_job(context: JobContext, soon: bool) -> None:
    context.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    context.unknown()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert context.remaining() + 1  # type: ignore[operator]  # pyright: ignore[reportOptionalOperand]
    if soon:
        context.release("soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    context.fail(ValueError("no"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
