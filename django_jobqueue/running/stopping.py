"""Being asked to stop, and hearing it in every wait.

A signal handler may interrupt any instruction, also one that holds a lock: asking only sets fields, puts to a
SimpleQueue, which Python makes safe for that, and writes a byte to a socket.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType

from ..drivers.base import Ear
from .watching import Bell, readable

# The first asks for a clean stop, a second one to stop now; SIGQUIT means now at once. Windows lacks some.
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
STOP_NOW_SIGNALS = ("SIGQUIT",)
# Handlers run between instructions of the main thread: a signal that comes just before its wait, or to another
# thread, is heard when that wait ends. So the main thread never waits longer at a time.
HEARING_SECONDS = 0.5


class Stopping:
    """One process' wish to stop; ``reason`` says why, ``signal_number`` is 0 when no signal asked."""

    def __init__(self) -> None:
        self.requested = False
        self.now = False
        self.reason = ""
        self.signal_number = 0
        self.asked_at = 0.0
        self._waiters: list[Waiter] = []
        # Never held by ``ask``, which a signal may run in the middle of what holds it.
        self._changing = threading.Lock()

    def ask(self, reason: str, signal_number: int = 0, *, now: bool = False) -> None:
        """Stop cleanly; asked a second time by a signal, or with ``now``, stop without waiting for running jobs."""
        if self.requested:
            self.now = self.now or now or bool(signal_number)
        else:
            self.reason, self.signal_number, self.asked_at = reason, signal_number, time.monotonic()
            self.now = now
            self.requested = True
        for waiter in self._waiters:
            waiter.wake()

    def waiter(self) -> Waiter:
        waiter = Waiter(self)
        with self._changing:
            self._waiters = [*self._waiters, waiter]
        return waiter

    def dismiss(self, waiter: Waiter) -> None:
        with self._changing:
            self._waiters = [other for other in self._waiters if other is not waiter]
        waiter.close()


class Waiter:
    """One thread's waits: each ends early by a stop, or by ``wake()`` from any thread or signal handler."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._wakes: SimpleQueue[None] = SimpleQueue()
        # What ends a wait that watches sockets; few do.
        self._bell: Bell | None = None
        self._is_watching = False

    def wake(self) -> None:
        self._wakes.put(None)
        if self._is_watching and self._bell is not None:
            self._bell.ring()

    def wait(self, seconds: float | None) -> bool:
        """Wait until woken, at most ``seconds``; return whether a stop was asked for. A stop never lets it wait."""
        if not self._stopping.requested:
            self.pause(seconds)
        return self._stopping.requested

    def pause(self, seconds: float | None, ears: Sequence[Ear] = ()) -> bool:
        """Wait until woken, at most ``seconds``, also while stopping; return whether it was woken.

        ``ears`` are listened to meanwhile: whoever hears that this one is meant wakes it.
        """
        longest = HEARING_SECONDS if threading.current_thread() is threading.main_thread() else None
        ends = None if seconds is None else time.monotonic() + seconds
        while not self._is_woken(_shorter(longest, None if ends is None else ends - time.monotonic()), ears):
            if ends is not None and time.monotonic() >= ends:
                return False
        while not self._wakes.empty():
            self._wakes.get()
        return True

    def close(self) -> None:
        """Nobody waits here any more."""
        if self._bell is not None:
            self._bell.close()

    def _is_woken(self, seconds: float | None, ears: Sequence[Ear]) -> bool:
        if ears:
            self._watch(seconds, ears)
            return not self._wakes.empty()
        try:
            self._wakes.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _watch(self, seconds: float | None, ears: Sequence[Ear]) -> None:
        """Wait until woken, or until there is something to hear, and hear it."""
        bell = self._bell = self._bell or Bell()
        held: dict[int, Ear] = {}
        try:
            for ear in ears:
                if (descriptor := ear.begin(bell.ring)) is not None:
                    held[descriptor] = ear
            self._is_watching = True  # before the look: who wakes us after it rings
            ready = readable([bell.descriptor, *held], seconds) if self._wakes.empty() else []
            self._is_watching = False
            for descriptor in ready:
                if descriptor == bell.descriptor:
                    bell.silence()
                else:
                    held[descriptor].hear()
        finally:
            self._is_watching = False
            for ear in held.values():
                ear.end()


def _shorter(longest: float | None, left: float | None) -> float | None:
    """The shorter of two waits, of which None has no end; what is over is no wait."""
    if left is None:
        return longest
    return max(0.0, left if longest is None else min(left, longest))


@contextmanager
def obeying_signals(stopping: Stopping, *, until_exit: bool = False) -> Iterator[None]:
    """Let signals ask for a stop, in the main thread only, and restore the handlers at the end.

    With ``until_exit`` the process ends after the block: a signal that comes then ends it at once, as a clean
    stop, and does not make it look like a crash.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.ask(signal.Signals(number).name, number)

    def stop_now(number: int, frame: FrameType | None) -> None:
        stopping.ask(signal.Signals(number).name, number, now=True)

    handlers = dict.fromkeys(STOP_SIGNALS, stop) | dict.fromkeys(STOP_NOW_SIGNALS, stop_now)
    before = {}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        # A process started in the background of a shell, or by nohup, has signals ignored on purpose.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, _leave if until_exit else previous or signal.SIG_DFL)
        if until_exit:
            atexit.register(_ignore, *before)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(0)


def _ignore(*numbers: int) -> None:
    """From here on no thread is waited for, and Python would put back the handlers that kill."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
