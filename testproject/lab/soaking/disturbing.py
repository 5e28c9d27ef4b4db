"""What happens to the workers: they are killed, stopped past their reservations, cut off, and lose their server.

Everything is told to the history with a begin not later, and an end not earlier, than it was.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias, get_args

from django.db.backends.base.base import BaseDatabaseWrapper

from . import history
from .history import Trouble
from .processes import CAN_SUPERVISE, GRACE_SECONDS, Process, Processes, worker_command
from .stores import ALL_AT_ONCE, OUTAGES, OwnDatabase

Disturbance: TypeAlias = Literal["worker", "server", "connection", "pause"]
DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)

# Seconds from one to the next, on average: in ten minutes about 120, 40, 100 and 10 of them.
BETWEEN: dict[Disturbance, float] = {"worker": 5, "pause": 15, "connection": 6, "server": 60}
# A short soak sees each of them so often at least.
LEAST_TIMES = 3
# How much longer than a reservation a worker is stopped.
PAST_RESERVATION = (0.3, 2.0)
# Half of the restarts are at once; the longest outage is longer than a reservation.
OUTAGES_IN_RESERVATIONS = (0.0, 0.0, 0.4, 1.2)
CLEAN_STOPS = 0.15
LONG_TRANSACTION_SECONDS = 20.0
COULD_NOT_START = 1
# Every second worker process runs two loops, and of four two are under a supervisor.
THREADS = (1, 2)
SUPERVISED = (False, False, True, True)
# Where a worker has a supervisor, that is killed too, now and then.
SUPERVISOR_KILLS = 0.2


@dataclass(slots=True)
class Counts:
    """What was done so far."""

    kills: int = 0
    kills_of_all: int = 0
    kills_of_supervisors: int = 0
    clean_stops: int = 0
    pauses: int = 0
    restarts: int = 0
    cuts: int = 0
    long_transactions: int = 0


class Disturber:
    """Owns the worker processes: ``start`` makes them, ``tick`` does what is due, ``settle_down`` mends all."""

    def __init__(
        self,
        processes: Processes,
        database: OwnDatabase,
        chosen: set[Disturbance],
        *,
        workers: int,
        retry_after: float,
        seconds: float,
        longest: float,
        random: Random,
    ) -> None:
        self.counts = Counts()
        self.troubles: list[Trouble] = []
        self._processes, self._database, self._random = processes, database, random
        self._retry_after, self._longest = retry_after, longest
        self._slots: list[Process | None] = [None] * workers
        self._start_at = [0.0] * workers
        self._between = {name: min(BETWEEN[name], seconds / (LEAST_TIMES + 1)) for name in DISTURBANCES}
        self._next = {name: time.monotonic() + self._pause(name) for name in DISTURBANCES if name in chosen}
        self._acts: dict[Disturbance, Callable[[], None]] = {
            "worker": self._hit_worker,
            "server": self._restart_server,
            "connection": self._cut_connection,
            "pause": self._pause_worker,
        }
        self._holder: BaseDatabaseWrapper | None = None
        self._hold_until = 0.0

    def start(self) -> None:
        for slot in range(len(self._slots)):
            self._start_worker(slot)

    def tick(self) -> None:
        """Do what is due; called many times a second."""
        self._look_after_workers()
        self._hold_long_transaction()
        now = time.monotonic()
        for name, moment in list(self._next.items()):
            if now >= moment:
                self._acts[name]()
                self._next[name] = time.monotonic() + self._pause(name)

    def settle_down(self) -> None:
        """Nothing more happens: everybody goes on, and the long transaction ends."""
        self._next = {}
        self._release_holder()
        for slot, worker in enumerate(self._slots):
            if worker is not None and worker.is_stopped:
                self._continue(worker)
            self._start_at[slot] = 0.0

    def watch(self) -> None:
        """Only see to it that all workers run."""
        self._look_after_workers()

    def end_workers(self) -> None:
        """Ask all to end, and wait; one that does not, or not well, is told to the history."""
        running = [worker for worker in self._slots if worker is not None and worker.code is None]
        for worker in running:
            worker.is_ending = True
            worker.signal(signal.SIGTERM)
        ends_at = time.monotonic() + GRACE_SECONDS + 10
        for worker in running:
            self._note_end(worker, worker.wait(ends_at - time.monotonic()))

    # Workers

    def _start_worker(self, slot: int) -> None:
        threads = THREADS[slot % len(THREADS)]
        supervised = CAN_SUPERVISE and SUPERVISED[slot % len(SUPERVISED)]
        command = worker_command(threads, self._longest, supervised=supervised)
        self._slots[slot] = self._processes.start(command, is_supervisor=supervised)

    def _look_after_workers(self) -> None:
        now = time.monotonic()
        for slot, worker in enumerate(self._slots):
            if worker is None:
                if now >= self._start_at[slot]:
                    self._start_worker(slot)
            elif worker.code is not None:
                self._note_end(worker, worker.code)
                self._vacate(slot)
            elif worker.continue_at is not None and now >= worker.continue_at:
                self._continue(worker)

    def _note_end(self, worker: Process, code: int | None) -> None:
        """Only a worker that was asked to end may end, with 0; one that has not begun may be unable to."""
        if worker.is_ending and code == 0:
            return
        if not self._processes.has_history(worker) and self._may_not_start(worker, code):
            return
        what = "did not end" if code is None else f"ended with exit code {code}"
        now = history.now()
        self._tell(Trouble("ended", worker.pid, now, now, f"{what}: {worker.last_words()}"))

    def _may_not_start(self, worker: Process, code: int | None) -> bool:
        """Ended by a signal before it heard any, or without a store to work with."""
        if code == -signal.SIGTERM:
            return worker.is_ending
        return code == COULD_NOT_START and "is not reachable" in worker.last_words()

    def _vacate(self, slot: int) -> None:
        self._slots[slot] = None
        self._start_at[slot] = time.monotonic() + self._random.uniform(0, 1)

    def _victims(self) -> list[int]:
        """The places of workers that run and are not stopped."""
        return [
            slot
            for slot, worker in enumerate(self._slots)
            if worker is not None and worker.code is None and not worker.is_stopped and not worker.is_ending
        ]

    def _hit_worker(self) -> None:
        victims = self._victims()
        if not victims:
            return
        if self._random.random() < CLEAN_STOPS:
            worker = self._slots[self._random.choice(victims)]
            if worker is not None:
                self._ask_to_end(worker)
            return
        if self._random.random() < ALL_AT_ONCE:
            self.counts.kills_of_all += 1
        else:
            victims = [self._random.choice(victims)]
        for slot in victims:
            self._kill(slot)

    def _kill(self, slot: int) -> None:
        worker = self._slots[slot]
        if worker is None or worker.code is not None:
            return  # by itself, and noted soon
        if worker.is_supervisor and self._random.random() >= SUPERVISOR_KILLS:
            self._kill_child(worker)
            return
        self.counts.kills_of_supervisors += worker.is_supervisor
        begun = history.now()
        worker.kill()
        self.counts.kills += 1
        self._tell(Trouble("kill", worker.pid, begun, history.now()))
        self._vacate(slot)

    def _kill_child(self, worker: Process) -> None:
        """Its supervisor gives back what it held, and starts another."""
        pid = worker.running_pid
        if pid is None:
            return
        begun = history.now()
        with suppress(OSError):  # one of them may have ended just now
            worker.kill_child(pid)
        self.counts.kills += 1
        self._tell(Trouble("kill", pid, begun, history.now()))

    def _ask_to_end(self, worker: Process) -> None:
        """A clean stop costs nothing: no job is repeated for it."""
        now = history.now()
        worker.is_ending = True
        worker.signal(signal.SIGTERM)
        self.counts.clean_stops += 1
        self._tell(Trouble("stop", worker.pid, now, now))

    def _pause_worker(self) -> None:
        victims = self._victims()
        worker = self._slots[self._random.choice(victims)] if victims else None
        pid = None if worker is None else worker.running_pid
        if worker is None or pid is None:
            return
        worker.stopped_pid, worker.stopped_at = pid, history.now()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        worker.continue_at = time.monotonic() + self._retry_after + self._random.uniform(*PAST_RESERVATION)

    def _continue(self, worker: Process) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker.stopped_pid, signal.SIGCONT)
        worker.continue_at = None
        self.counts.pauses += 1
        self._tell(Trouble("pause", worker.stopped_pid, worker.stopped_at, history.now()))

    # The store

    def _cut_connection(self) -> None:
        begun = history.now()
        with suppress(*OUTAGES):
            if done := self._database.cut(self._random):
                self.counts.cuts += done
                self._tell(Trouble("cut", None, begun, history.now(), f"{done} connections"))

    def _restart_server(self) -> None:
        """Ended cleanly or killed, away for a while or not."""
        server = self._database.server
        if server is None:
            return
        self._database.close()
        begun = history.now()
        how = self._random.choice((server.stop, server.kill))
        how()
        away = self._random.choice(OUTAGES_IN_RESERVATIONS) * self._retry_after
        ends_at = time.monotonic() + away
        while time.monotonic() < ends_at:
            self._look_after_workers()
            time.sleep(0.05)
        server.start()
        self.counts.restarts += 1
        self._tell(Trouble("server", None, begun, history.now(), f"{how.__name__}, away for {away:.1f} s"))

    def _hold_long_transaction(self) -> None:
        now = time.monotonic()
        if now < self._hold_until:
            return
        self._release_holder()
        self._hold_until = now + LONG_TRANSACTION_SECONDS
        holder = self._database.connect()
        try:
            with holder.cursor() as cursor:
                self._database.begin_long_transaction(cursor)
                cursor.execute("SELECT COUNT(*) FROM django_jobqueue_job")
                cursor.fetchall()
        except OUTAGES:
            holder.close()
            return
        self._holder = holder
        self.counts.long_transactions += 1

    def _release_holder(self) -> None:
        if self._holder is not None:
            with suppress(*OUTAGES):
                self._holder.close()
            self._holder = None

    # Details

    def _pause(self, name: Disturbance) -> float:
        return self._between[name] * self._random.uniform(0.5, 1.5)

    def _tell(self, trouble: Trouble) -> None:
        self.troubles.append(trouble)
        history.write(trouble)
