"""One worker process of a supervisor: started afresh, never forked, so that nothing of the parent is shared with it.

Its standard input is a pipe whose other end the supervisor holds: when that closes, the supervisor is gone.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from ..jobs.definition import Definition
from .notes import Noted, Notes
from .stopping import Stopping

STACK_SUFFIX = ".stack"
_STDIN = 0
# Of the process that is asked where it hangs: not one that projects use.
_ASKING = getattr(signal, "SIGRTMAX", 0) and signal.SIGRTMAX - 2
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_CALLS_HANDLER = (Definition.call.__code__.co_filename, Definition.call.__code__.co_name)


class Child:
    """As the supervisor sees it. ``command`` is that of a worker, which is told where its notes are."""

    def __init__(self, command: Sequence[str], notes_path: Path, workers: int) -> None:
        self.notes = Notes.create(notes_path, workers)
        self._path = notes_path
        self.started = time.monotonic()
        self.late: list[Noted] = []  # what it is killed for
        self.late_until = float("inf")
        self.kill_at = float("inf")
        # A group of its own: Ctrl-C of a terminal goes to the supervisor, which passes it on.
        options = {"start_new_session": True} if os.name == "posix" else {}
        self._process = subprocess.Popen([*command, str(notes_path)], stdin=subprocess.PIPE, **options)  # type: ignore[call-overload]  # noqa: S603

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def code(self) -> int | None:
        """None while it runs; below zero when a signal killed it."""
        code: int | None = self._process.poll()
        return code

    def pass_on(self, number: int, *, now: bool) -> None:
        """Ask it to stop; with ``now``, not to wait for running jobs."""
        if not self.notes.is_ready:
            number = signal.SIGTERM  # it may have no handlers yet
        elif now:
            number = getattr(signal, "SIGQUIT", number)
        if os.name != "posix":
            self._process.stdin.close()
        else:
            self._process.send_signal(number or signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def ask_for_stack(self) -> bool:
        """Have it write down where each of its threads is; return whether that is possible."""
        if not _ASKING:
            return False
        self._process.send_signal(_ASKING)
        return True

    def stack(self, thread: int) -> str:
        """Where a thread of it was when it was asked, as a traceback."""
        try:
            text = _stack_path(self._path).read_text(errors="replace")
        except OSError:
            return ""
        parts = _THREAD.split(text)
        by_thread = {int(ident, 16): frames for ident, frames in zip(parts[1::2], parts[2::2], strict=True)}
        found = [(file, int(line), name, None) for file, line, name in _FRAME.findall(by_thread.get(thread, ""))]
        found.reverse()
        # How we came to call the handler tells its author nothing.
        ours = [number for number, frame in enumerate(found) if (frame[0], frame[2]) == _CALLS_HANDLER]
        if not found:
            return ""
        summary = traceback.StackSummary.from_list(found[max(ours, default=-1) + 1 :])
        return "".join(["Stack when it hung (most recent call last):\n", *summary.format()])

    def close(self) -> None:
        """It has ended: nothing of it stays behind."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.notes.close()
        for path in (self._path, _stack_path(self._path)):
            path.unlink(missing_ok=True)


@contextmanager
def answering_supervisor(notes_path: Path, stopping: Stopping) -> Iterator[None]:
    """In the child: stop when the supervisor is gone, and write down where it hangs when it is asked to."""
    gone = Event()
    Thread(target=_wait_for_end, args=(stopping, gone), name="jobqueue-supervisor", daemon=True).start()
    try:
        with _writing_stack(notes_path):
            yield
    finally:
        if gone.is_set():
            _clean_up(notes_path)


@contextmanager
def _writing_stack(notes_path: Path) -> Iterator[None]:
    if not _ASKING:
        yield
        return
    with _stack_path(notes_path).open("w") as file:
        faulthandler.register(_ASKING, file=file, all_threads=True)
        try:
            yield
        finally:
            faulthandler.unregister(_ASKING)


def _wait_for_end(stopping: Stopping, gone: Event) -> None:
    """Read the descriptor itself: a thread that is inside of a file object would block the interpreter's exit."""
    with suppress(OSError):
        while os.read(_STDIN, 64):
            pass
    gone.set()
    stopping.ask("the supervisor is gone")


def _clean_up(notes_path: Path) -> None:
    """What the supervisor would have done; the last process to end removes the folder."""
    with suppress(OSError):
        notes_path.unlink(missing_ok=True)
        _stack_path(notes_path).unlink(missing_ok=True)
        notes_path.parent.rmdir()


def _stack_path(notes_path: Path) -> Path:
    return notes_path.with_name(notes_path.name + STACK_SUFFIX)
