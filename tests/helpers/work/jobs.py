"""Jobs that tell the test what became of them, and that do to their worker what a test needs."""

from __future__ import annotations

import os
import signal
from threading import Event, Lock, Thread

from django.db import connection

from django_jobqueue import job
from shop.models import Customer
from tests.helpers.marks import release_file, write_mark
from tests.helpers.waiting import wait_until


def _die_once(key: object) -> None:
    """Kill this process, unless a process was killed by this key before."""
    trace = release_file().with_suffix(f".died-{key}")
    if not trace.exists():
        trace.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@job(name="work.mark")
def mark(key: int | str = "") -> None:
    write_mark("ran", key)


@job(name="work.act")
def act(key: int | str = "", what: str = "") -> None:
    """One name for quick jobs and deadly ones, so that they are reserved together."""
    write_mark("started", key)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "die once":
        _die_once(key)
    write_mark("ran", key)


@job(name="work.linger")
def linger(key: int | str = "", before: str = "") -> str:
    """Take a moment, in which a test may kill this process; ``before`` is what the step before has returned."""
    Event().wait(0.01)
    write_mark("ran", f"{before}>{key}" if before else key)
    return str(key)


@job(name="work.hold")
def hold(key: int | str = "") -> None:
    """Run until the test lets go."""
    write_mark("started", key)
    wait_until(release_file().exists, "the test lets go")
    write_mark("ran", key)


@job(name="work.hold_once", max_attempts=1)
def hold_once(key: int | str = "") -> None:
    write_mark("started", key)
    wait_until(release_file().exists, "the test lets go")
    write_mark("ran", key)


@job(name="work.die")
def die(key: int | str = "") -> None:
    write_mark("started", key)
    os.kill(os.getpid(), signal.SIGKILL)


@job(name="work.add_customer", atomic=True)
def add_customer(name: str, then: str = "") -> None:
    """Write a row; with ``then`` this process is killed, or the job held, before the commit."""
    write_mark("started", name)
    Customer.objects.create(name=name, email=f"{name}@example.com")
    if then == "die once":
        _die_once(name)
    elif then == "hold":
        wait_until(release_file().exists, "the test lets go")
    write_mark("ran", name)


@job(name="work.hang", max_attempts=1, timeout=0.5)
def hang(how: str) -> None:
    """Be where no exception is raised: waiting for a lock, or busy without a step of Python."""
    write_mark("started", how)
    if how == "lock":
        lock = Lock()
        lock.acquire()
        lock.acquire()
    else:
        sum(range(10**13))


@job(name="work.eat_memory")
def eat_memory(megabytes: int) -> None:
    _eaten.append(b"x" * megabytes * 1024 * 1024)
    write_mark("ran", megabytes)


_eaten: list[bytes] = []


@job(name="work.query")
def query(key: int | str = "") -> None:
    """Five queries, and a mark with the session's number on the servers that have one."""
    for _ in range(5):
        Customer.objects.count()
    raw = connection.connection
    session = {"postgresql": lambda: raw.info.backend_pid, "mysql": lambda: raw.thread_id()}.get(connection.vendor)
    write_mark("ran", session() if session else key)


@job(name="work.fail", max_attempts=1)
def fail(key: int | str = "") -> None:
    write_mark("started", key)
    raise ValueError("it always does")


@job(name="work.signal_elsewhere")
def signal_elsewhere() -> None:
    """Let this process have a SIGTERM that does not interrupt what its main thread waits for."""

    def send() -> None:
        Event().wait(0.5)
        signal.raise_signal(signal.SIGTERM)

    write_mark("ran", "")
    Thread(target=send).start()
