"""Several worker processes, kept running: signals passed on, the dead replaced, what they held given back.

The supervisor needs no query for that. Only what a dead process held is given back through the store, beside the
loop, which goes on while a store is out of reach.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..drivers import Driver
from ..exceptions import JobTimeout
from ..jobs.records import Cause
from ..jobs.workers import LATE_SECONDS
from .children import Child
from .health import HealthFile
from .notes import Noted
from .options import WorkerOptions, WorkerStats
from .recovering import InHand, Recovery
from .stopping import Stopping
from .timeouts import LAST_SECONDS

logger = logging.getLogger("django_jobqueue")

LOOK_INTERVAL = 0.1
TOUCH_INTERVAL = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# What a process may take on top of the grace time to give back what it holds.
STORE_TIME = 5.0
# What it may take to write down where it hangs.
STACK_SECONDS = 0.3
MEMORY_REACHED = 12  # the exit code of a worker process
_CLEAN = (0, MEMORY_REACHED)
TIMEOUT_CLASS = f"{JobTimeout.__module__}.{JobTimeout.__qualname__}"


@dataclass(slots=True)
class _Place:
    """For one process, and the next that takes its place; ``pause`` grows while none of them becomes ready."""

    number: int
    child: Child | None = None
    start_at: float = 0.0
    pause: float = FIRST_PAUSE
    is_over: bool = False


class Supervisor:
    """``command`` starts a worker process when the path of its notes is added."""

    def __init__(
        self,
        options: WorkerOptions,
        drivers: Sequence[Driver],
        *,
        processes: int,
        command: Sequence[str],
        stopping: Stopping | None = None,
        health: HealthFile | None = None,
        start: Callable[[Sequence[str], Path, int], Child] = Child,
    ) -> None:
        self.options = options
        self.stopping = stopping or Stopping()
        self.stats = WorkerStats()
        self._command = command
        self._health = health or HealthFile(None)
        self._touch_at = 0.0
        self._start_child = start
        self._waiter = self.stopping.waiter()
        self._recovery = Recovery(options, drivers)
        self._places = [_Place(number) for number in range(processes)]
        self._started = 0
        self._was_asked = self._was_hurried = self._left_jobs = False

    def run(self) -> int:
        """Keep the processes running until told to stop; return the exit code."""
        self._folder = Path(tempfile.mkdtemp(prefix="jobqueue-"))
        try:
            while not self._look():
                self._waiter.pause(LOOK_INTERVAL)
            patience = STORE_TIME if self.stopping.now else self.options.grace or self.options.error_backoff_cap
            if not self._recovery.end(patience):
                logger.error("What a dead worker process held could not be given back: it is rescued in time.")
        finally:
            self._kill_all()
            self.stopping.dismiss(self._waiter)
            shutil.rmtree(self._folder, ignore_errors=True)
        return 128 + self.stopping.signal_number if self._left_jobs and self.stopping.signal_number else 0

    def _look(self) -> bool:
        """Look after every process once; return whether all are over."""
        now = time.monotonic()
        if self.stopping.requested:
            self._pass_on(now)
        for place in self._places:
            if place.child is not None:
                self._look_after(place, place.child, now)
            if place.child is None and not place.is_over and not self.stopping.requested and now >= place.start_at:
                self._start(place)
        self._touch_when_due(now)
        return all(place.child is None and (place.is_over or self.stopping.requested) for place in self._places)

    def _touch_when_due(self, now: float) -> None:
        if now < self._touch_at:
            return
        self._touch_at = now + TOUCH_INTERVAL
        said = [child.notes.well_at for child in self._children()]
        if said and len(said) == sum(not place.is_over for place in self._places) and now - min(said) < LATE_SECONDS:
            self._health.touch()

    def _start(self, place: _Place) -> None:
        self._started += 1
        place.child = self._start_child(
            self._command, self._folder / f"{place.number}-{self._started}", self.options.workers
        )

    def _pass_on(self, now: float) -> None:
        """Each wish once: a process takes a second one for a wish to stop at once."""
        hurried = self.stopping.now and not self._was_hurried
        if hurried or not self._was_asked:
            for child in self._children():
                child.pass_on(self.stopping.signal_number, now=self.stopping.now)
        self._was_asked, self._was_hurried = True, self.stopping.now
        grace = 0.0 if self.stopping.now else self.options.grace or float("inf")
        for child in self._children():
            child.kill_at = min(child.kill_at, max(now, self.stopping.asked_at + grace) + STORE_TIME)

    def _children(self) -> list[Child]:
        return [place.child for place in self._places if place.child is not None]

    def _look_after(self, place: _Place, child: Child, now: float) -> None:
        if (code := child.code) is not None:
            self._bury(place, child, code, now)
            return
        if child.notes.is_ready:
            place.pause = FIRST_PAUSE
        self._look_for_late(child, now)
        if now >= child.kill_at:
            child.kill()

    def _look_for_late(self, child: Child, now: float) -> None:
        """Of what nothing inside the process has reached, write down where it hangs; then the process is ended."""
        if now >= child.kill_at:
            return
        late = [
            noted
            for noted in child.notes.in_hand()
            if noted.times_out is not None and now >= noted.times_out + LAST_SECONDS
        ]
        if late and not child.late:
            child.late_until = now + STACK_SECONDS if child.ask_for_stack() else now
        child.late = late
        if late and now >= child.late_until:
            child.kill()
            child.kill_at = now  # whatever ends just now: it is killed for these

    def _bury(self, place: _Place, child: Child, code: int, now: float) -> None:
        """A process has ended: count what it did, give back what it held, and say what follows."""
        was_ready = child.notes.is_ready
        self.stats += child.notes.stats
        if self.stopping.requested and was_ready and code not in _CLEAN:
            self._left_jobs = True
        if code != 0 or child.notes.in_hand():
            self._recovery.recover(child.notes.identities(), self._in_hand(child))
        if child.notes.found_another_release:
            self._end_outdated()
        place.is_over = code == 0 and child.notes.is_over
        place.child = None
        if not was_ready:
            place.start_at = now + place.pause
            place.pause = min(place.pause * 2, LONGEST_PAUSE)
        if not self.stopping.requested and not place.is_over:
            _tell(child, code)
        child.close()

    def _in_hand(self, child: Child) -> list[InHand]:
        """When it was ended for a job that timed out, the others that it was at are not to blame."""
        late = {noted.id: noted for noted in child.late}
        return [
            InHand(noted, spends=not late or noted.id in late, cause=_hung(child, noted) if noted.id in late else None)
            for noted in child.notes.in_hand()
        ]

    def _end_outdated(self) -> None:
        """New processes could not read what this one notes for them, nor it what they note."""
        if not self.stopping.requested:
            logger.warning(
                "django_jobqueue was upgraded: the supervisor of release %s ends, to be started afresh",
                __version__,
                extra={"event": "supervisor_outdated", "version": __version__},
            )
            self.stopping.ask("django_jobqueue was upgraded")

    def _kill_all(self) -> None:
        """Only when the supervisor itself fails is anything left here."""
        for child in self._children():
            child.kill()


def _tell(child: Child, code: int) -> None:
    logger.log(
        logging.INFO if code in _CLEAN else logging.WARNING,
        "worker process %s %s; it is replaced",
        child.pid,
        "was ended, since a job of it had not ended after its timeout" if child.late else _ending(code),
        extra={"event": "process_ended", "pid": child.pid, "code": code},
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _hung(child: Child, noted: Noted) -> Cause:
    return Cause(
        exception_class=TIMEOUT_CLASS,
        message="It ran longer than its timeout, and nothing reached it: its worker process was ended.",
        traceback=child.stack(noted.thread),
    )
