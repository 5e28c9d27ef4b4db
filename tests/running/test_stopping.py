"""Being asked to stop: by whom, how often, and heard in every wait; and signals, whose handlers are put back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobqueue.drivers import Driver
from django_jobqueue.running.stopping import Stopping, obeying_signals
from django_jobqueue.running.worker import Worker
from tests.helpers.gates import Gate, Started
from tests.helpers.waiting import DEADLINE

Register = Callable[..., Callable[[Callable[..., Any]], Any]]


def test_nothing_was_asked_at_first() -> None:
    stopping = Stopping()
    assert (stopping.requested, stopping.now, stopping.reason, stopping.signal_number) == (False, False, "", 0)


def test_the_first_ask_gives_the_reason() -> None:
    stopping = Stopping()
    stopping.ask("SIGTERM", 15)
    stopping.ask("SIGINT", 2)
    assert (stopping.reason, stopping.signal_number) == ("SIGTERM", 15)


@pytest.mark.parametrize(
    ("second", "is_now"),
    [({"signal_number": 15}, True), ({"now": True}, True), ({}, False)],
    ids=["signal", "now", "neither"],
)
def test_a_second_ask_by_a_signal_means_now(second: dict[str, Any], is_now: bool) -> None:
    stopping = Stopping()
    stopping.ask("first", 15)
    assert not stopping.now
    stopping.ask("second", **second)
    assert stopping.now is is_now


def test_an_ask_can_mean_now_at_once() -> None:
    stopping = Stopping()
    stopping.ask("SIGQUIT", 3, now=True)
    assert stopping.now


def test_the_grace_time_counts_from_the_first_ask() -> None:
    stopping = Stopping()
    before = time.monotonic()
    stopping.ask("first")
    asked_at = stopping.asked_at
    assert before <= asked_at <= time.monotonic()
    stopping.ask("second")
    assert stopping.asked_at == asked_at


# Waits


@pytest.mark.parametrize("in_main", [True, False], ids=["main thread", "other thread"])
def test_a_stop_ends_a_wait(in_main: bool) -> None:
    stopping = Stopping()
    waiter = stopping.waiter()
    heard: list[bool] = []
    asking = threading.Thread(target=stopping.ask, args=("now",))
    if in_main:
        asking.start()
        heard.append(waiter.wait(DEADLINE))
    else:
        waiting = threading.Thread(target=lambda: heard.append(waiter.wait(DEADLINE)))
        waiting.start()
        asking.start()
        waiting.join(DEADLINE)
    asking.join()
    assert heard == [True]


def test_a_stop_that_came_before_lets_nobody_wait() -> None:
    stopping = Stopping()
    waiter = stopping.waiter()
    stopping.ask("now")
    assert waiter.wait(DEADLINE)
    assert waiter.wait(None)


def test_a_wake_just_before_a_wait_ends_it() -> None:
    waiter = Stopping().waiter()
    waiter.wake()
    waiter.wake()
    assert waiter.pause(DEADLINE)
    assert not waiter.pause(0)  # both were for that one


def test_a_wait_ends_by_itself() -> None:
    waiter = Stopping().waiter()
    assert not waiter.wait(0)
    assert not waiter.pause(0.001)
    assert not waiter.pause(-1)


def test_a_pause_waits_also_while_stopping() -> None:
    stopping = Stopping()
    stopping.ask("before")
    waiter = stopping.waiter()
    assert not waiter.pause(0.001)


def test_everybody_hears_a_stop_and_who_left_is_not_called() -> None:
    stopping = Stopping()
    waiters = [stopping.waiter() for _ in range(3)]
    stopping.dismiss(waiters[1])
    stopping.ask("now")
    assert [waiter.pause(0) for waiter in waiters] == [True, False, True]


# Signals


@pytest.fixture
def handlers() -> Iterator[Callable[[], dict[int, Any]]]:
    """All signal handlers; at the end of the test they are as before, whatever it did."""

    def read() -> dict[int, Any]:
        return {number: signal.getsignal(number) for number in signal.valid_signals()}

    before = read()
    yield read
    for number, handler in before.items():
        if signal.getsignal(number) is not handler and handler is not None:
            signal.signal(number, handler)


STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_asks_for_a_stop_and_the_second_for_now(
    number: signal.Signals, handlers: Callable[[], dict[int, Any]]
) -> None:
    stopping = Stopping()
    with obeying_signals(stopping):
        os.kill(os.getpid(), number)
        assert (stopping.requested, stopping.now) == (True, False)
        assert (stopping.reason, stopping.signal_number) == (number.name, number)
        os.kill(os.getpid(), number)
        assert stopping.now


def test_sigquit_means_now(handlers: Callable[[], dict[int, Any]]) -> None:
    stopping = Stopping()
    with obeying_signals(stopping):
        os.kill(os.getpid(), signal.SIGQUIT)
    assert (stopping.requested, stopping.now, stopping.reason) == (True, True, "SIGQUIT")


def test_handlers_are_put_back_at_the_end(handlers: Callable[[], dict[int, Any]]) -> None:
    """F90"""
    before = handlers()
    with obeying_signals(Stopping()):
        assert handlers() != before
    assert handlers() == before


def test_handlers_are_put_back_after_an_error_too(handlers: Callable[[], dict[int, Any]]) -> None:
    before = handlers()
    with pytest.raises(ValueError, match="inside"), obeying_signals(Stopping()):
        raise ValueError("inside")
    assert handlers() == before


def test_a_signal_that_is_ignored_on_purpose_stays_ignored(handlers: Callable[[], dict[int, Any]]) -> None:
    """As for a process that nohup started."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping = Stopping()
    with obeying_signals(stopping):
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert not stopping.requested
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_installs_no_handlers(handlers: Callable[[], dict[int, Any]]) -> None:
    """F90"""
    seen: list[Any] = []
    before = handlers()

    def run() -> None:
        with obeying_signals(Stopping()):
            seen.append(handlers())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(DEADLINE)
    assert seen == [before]


def test_many_signals_at_once_are_one_stop(handlers: Callable[[], dict[int, Any]]) -> None:
    """F26: a handler only sets a flag, wherever it interrupts."""
    stopping = Stopping()
    waiter = stopping.waiter()
    ended = threading.Event()

    def send() -> None:
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGTERM)
        ended.set()

    with obeying_signals(stopping):
        sending = threading.Thread(target=send)
        sending.start()
        while not ended.is_set():
            waiter.wake()
            waiter.pause(0)
            stopping.dismiss(stopping.waiter())
        sending.join()
    assert (stopping.requested, stopping.reason) == (True, "SIGTERM")


def test_a_keyboard_interrupt_of_a_handlers_own_is_no_stop(
    memory: Driver, make_worker: Callable[..., Worker], register: Register, handlers: Callable[[], dict[int, Any]]
) -> None:
    """F25: raised by the body it fails the job; sent by a person it stops the worker, and the job ends."""
    stopping = Stopping()
    seen: list[str] = []

    @register(max_attempts=1)
    def work(mode: str) -> None:
        seen.append(mode)
        if mode == "raise":
            raise KeyboardInterrupt
        if mode == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        seen.append("end")

    for mode in ("raise", "signal", "never"):
        work.dispatch(mode)
    with obeying_signals(stopping):
        stats = make_worker(stopping=stopping).run()
    assert seen == ["raise", "signal", "end"]
    assert (stats.processed, stats.failed, stopping.reason) == (1, 1, "SIGINT")


def test_a_worker_in_another_thread_works_without_handlers(
    driver: Driver,
    make_worker: Callable[..., Worker],
    start: Callable[..., Started],
    register: Register,
    gate: Gate,
    handlers: Callable[[], dict[int, Any]],
) -> None:
    """F90"""
    before = handlers()

    @register()
    def work() -> None: ...

    work.dispatch()
    assert start(make_worker(stop_when_empty=True)).end().processed == 1
    assert handlers() == before
