"""The time limit of an attempt: how a handler that takes too long is told, and what is said when nothing reaches it.

In the main thread an alarm raises ``TimedOut`` in the handler, also out of most system calls; in another thread, or
without alarms, the keeper has Python raise it there, which waits until a system call returns. An ``async def`` handler
is cancelled. Each is repeated while the handler swallows it. Where none gets through only a supervisor helps, which
ends the process.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from asgiref.sync import async_to_sync

from ..conf import get_settings
from ..exceptions import JobTimeout
from ..jobs.records import Reservation
from ..jobs.registry import registry
from .notes import Page
from .stopping import Stopping

try:
    import ctypes

    _REACHES_THREADS = True
except ImportError:
    _REACHES_THREADS = False

logger = logging.getLogger("django_jobqueue")

# While a handler swallows it.
AGAIN_SECONDS = 0.2
# What a handler may take to end when it was told.
LAST_SECONDS = 2.0
_HAS_ALARM = hasattr(signal, "setitimer") and hasattr(signal, "SIGALRM")
_NEVER = float("inf")


class TimedOut(BaseException):
    """Raised inside of a handler whose time is over; no ``except Exception`` swallows it."""


def describe(name: str, seconds: float) -> str:
    return f"The job {name!r} ran longer than its timeout of {seconds:g} s."


def unreached(*, in_threads: bool) -> str | None:
    """Which jobs no timeout ends in a process without a supervisor; None when it is code in C at most."""
    if _HAS_ALARM and not in_threads:
        return None
    if not _REACHES_THREADS:
        return "a job that is not async"
    return "a job that waits without an end, for a lock or a socket, or that computes in C"


def are_limited() -> bool:
    """Whether any job has a timeout, by its definition or by the settings."""
    return get_settings().timeout is not None or any(
        isinstance(definition.timeout, float) for definition in registry.definitions()
    )


class Limit:
    """What holds the handlers of one loop to their time; it also notes for a supervisor which of them runs."""

    def __init__(self, page: Page | None = None) -> None:
        self._page = page
        self._deadline: float | None = None
        self._fired = False
        self._job: Reservation | None = None
        self._complained = False
        self._by_alarm = False
        self._alarm = _Alarm(self._may_raise)
        self._lock = threading.Lock()
        self._thread: int | None = None

    # The loop

    def begin(self) -> None:
        """Handlers follow, in this thread."""
        self._by_alarm = _HAS_ALARM and threading.current_thread() is threading.main_thread()

    def end(self) -> None:
        """No handler follows for now: no alarm is left armed."""
        self._alarm.disarm()

    def clear(self) -> None:
        """The job in hand has ended, settling included."""
        if self._page is not None:
            self._page.clear()

    def run(self, job: Reservation, seconds: float | None, call: Callable[[], Any]) -> Any:
        """Call a handler, and await what it returns when that is awaitable; raises JobTimeout when it took too long."""
        if seconds is None:
            if self._page is not None:
                self._page.note(job, None)
            result = call()
            return result if result is None or not inspect.isawaitable(result) else async_to_sync(_await)(result)
        self._fired = self._complained = False
        self._job = job
        deadline = self._deadline = time.monotonic() + seconds
        if self._page is not None:
            self._page.note(job, deadline)
        try:
            result = self._call_by_alarm(deadline, call) if self._by_alarm else self._call_in_thread(call)
            if result is not None and inspect.isawaitable(result):
                result = async_to_sync(self._await)(result, deadline)
        except BaseException as error:
            if not self._fired:
                raise
            late = JobTimeout(describe(job.name, seconds))
            if isinstance(error, TimedOut):
                raise late.with_traceback(error.__traceback__) from None
            raise late from error
        finally:
            self._deadline = None
        if self._fired:
            raise JobTimeout(describe(job.name, seconds))
        return result

    def _call_by_alarm(self, deadline: float, call: Callable[[], Any]) -> Any:
        self._alarm.fire_by(deadline)
        return _inside(call)

    def _may_raise(self) -> bool:
        """Whether the handler in hand is over its time; when it is, it is told now."""
        deadline = self._deadline
        self._fired = self._fired or (deadline is not None and time.monotonic() >= deadline)
        return self._fired

    def _call_in_thread(self, call: Callable[[], Any]) -> Any:
        self._thread = threading.get_ident()
        try:
            try:
                return _inside(call)
            finally:
                self._leave()
        except TimedOut:
            self._leave()  # it came between the handler's end and the leaving
            raise

    def _leave(self) -> None:
        """From here on nothing is raised in this thread."""
        while True:
            try:
                with self._lock:
                    if self._fired and self._thread is not None:
                        _raise_in(self._thread, None)
                    self._thread = None
                return
            except TimedOut:
                continue

    async def _await(self, awaitable: Awaitable[Any], deadline: float) -> Any:
        """Await in the loop that asgiref has made: neither an alarm nor the keeper reaches a coroutine."""
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def cancel() -> None:
            self._fired = True
            if task is not None:
                task.cancel()
            timers.append(loop.call_later(AGAIN_SECONDS, cancel))

        timers.append(loop.call_later(max(0.0, deadline - time.monotonic()), cancel))
        try:
            return await awaitable
        finally:
            timers[-1].cancel()

    def is_overdue(self, now: float) -> bool:
        """Whether a handler goes on although it was told that its time is over."""
        deadline = self._deadline
        return deadline is not None and now >= deadline + LAST_SECONDS

    # The keeper

    def look(self) -> float | None:
        """Tell a handler whose time is over, where its own thread cannot; return the seconds until the next look."""
        with self._lock:
            deadline, thread = self._deadline, self._thread
            if deadline is None:
                return None
            left = deadline - time.monotonic()
            if left > 0:
                return left
            if thread is not None:
                self._fired = True
                _raise_in(thread, TimedOut)
        if left < -LAST_SECONDS:
            self._complain()
        return AGAIN_SECONDS

    def _complain(self) -> None:
        """Once for each attempt. A supervisor does more about it, and says so."""
        job = self._job
        if self._page is None and not self._complained and job is not None:
            self._complained = True
            logger.error(
                "job %s %s has not ended after its timeout, and nothing reaches it: only a supervisor "
                "(queue_work --processes) could end its process",
                job.name,
                job.id,
                extra={"event": "job_stuck", "job": job.name, "id": str(job.id), "queue": job.queue},
            )


class _Alarm:
    """The process' alarm clock, borrowed: what was set before is set again when it is given back.

    It is set once for many handlers, and set anew when it goes off too early for the one that runs then.
    """

    def __init__(self, may_raise: Callable[[], bool]) -> None:
        self._may_raise = may_raise
        self._is_armed = False
        self._fires_at = _NEVER
        self._handler_before: Any = None
        self._timer_before = (0.0, 0.0)
        self._armed_at = 0.0
        self._deadline = 0.0

    def fire_by(self, deadline: float) -> None:
        self._deadline = deadline
        if deadline < self._fires_at:
            self._arm(deadline)

    def _arm(self, deadline: float) -> None:
        now = time.monotonic()
        if not self._is_armed:
            self._handler_before = signal.signal(signal.SIGALRM, self._go_off)
        self._fires_at = deadline
        before = signal.setitimer(signal.ITIMER_REAL, max(1e-6, deadline - now), AGAIN_SECONDS)
        if not self._is_armed:
            self._is_armed, self._armed_at, self._timer_before = True, now, before

    def disarm(self) -> None:
        if not self._is_armed:
            return
        self._deadline = 0.0  # one that is on its way must not set it anew
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._handler_before or signal.SIG_DFL)
        self._is_armed, self._fires_at = False, _NEVER
        left, interval = self._timer_before
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, left - (time.monotonic() - self._armed_at)), interval)

    def _go_off(self, number: int, frame: FrameType | None) -> None:
        """Raise in a handler only: between its end and the next one's beginning the alarm is not for anybody."""
        if not self._may_raise():
            if time.monotonic() < self._deadline:
                self._arm(self._deadline)
            else:  # for a handler that has ended: the next one may have no limit
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._fires_at = _NEVER
        elif _is_inside(frame):
            raise TimedOut


def _inside(call: Callable[[], Any]) -> Any:
    """What runs above this frame is the handler."""
    return call()


def _is_inside(frame: FrameType | None) -> bool:
    above: FrameType | None = None
    while frame is not None:
        if frame.f_code is Stopping.ask.__code__:
            return False  # a signal that came first must not be forgotten half heard
        if frame.f_code is _inside.__code__:
            return above is not None
        above, frame = frame, frame.f_back
    return False


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have Python raise an error in another thread, at its next step; None takes back what is not raised yet."""
    if _REACHES_THREADS:
        given = None if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
