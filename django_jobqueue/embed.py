"""Workers inside a web server's process, for development and for small sites.

``start()`` is for WSGI and ASGI servers: call it in the process that serves, for example at the end of ``wsgi.py``.
Under ``runserver`` nothing needs to be called: its serving process has as many workers as the setting
EMBEDDED_WORKERS says, one when that is None and DEBUG is on.

Whatever happens to the workers, the web server goes on. When its process exits, they give back what they hold.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from socketserver import BaseServer
from threading import Event, Lock, Thread, current_thread, main_thread
from threading import enumerate as all_threads
from types import FrameType

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

from .conf import get_settings
from .dispatching.discovery import load_handlers
from .jobs.definition import check_count
from .running.options import WorkerOptions
from .running.pool import Pool
from .running.stopping import Stopping
from .running.surroundings import close_connections
from .running.worker import drivers_of

logger = logging.getLogger("django_jobqueue")

#: How long, at exit, a job may take to finish before it is released; servers kill who takes longer than they wait.
EXIT_GRACE = 5.0
#: After Ctrl-C the reloader kills the serving process when a quarter of a second is over.
DEVELOPMENT_GRACE = 0.1
#: What giving back may take on top of that, when the store is slow.
STORE_TIME = 2.0

LOOK_INTERVAL = 0.05
#: After this, a server that nobody recognizes, such as another package's runserver, is taken to serve.
LONGEST_CHECKS = 10.0
DJANGO_THREAD = "django-main-thread"  # what the reloader calls the thread that serves


class Embedded:
    """The workers of this process; ``workers`` says how many, and may be 0."""

    def __init__(self, workers: int, grace: float, *, waits_for_runserver: bool = False) -> None:
        self.workers = workers
        self._pid = os.getpid()
        self._grace = grace
        self._waits_for_runserver = waits_for_runserver
        self._stopping = Stopping()
        self._finished = Event()
        self._thread = Thread(target=self._run, name="jobqueue-embedded", daemon=True)
        if workers:
            self._thread.start()
        else:
            self._finished.set()

    @property
    def is_running(self) -> bool:
        """False in a forked child, which has none of its parent's threads."""
        return self._pid == os.getpid() and not self._finished.is_set()

    def stop(self) -> None:
        """End the workers: jobs in hand may finish within the grace time, all others are given back at once."""
        if not self.is_running:
            return
        self._stopping.ask("exit")
        if self._finished.wait(self._grace + STORE_TIME):
            self._thread.join(LOOK_INTERVAL)

    def _run(self) -> None:
        try:
            if self._wait_for_apps() and self._wait_for_server():
                self._work()
        except Exception:
            logger.exception("The embedded workers could not start; the web server goes on without them.")
        finally:
            close_connections()
            self._finished.set()

    def _wait_for_apps(self) -> bool:
        while not self._stopping.requested:
            if apps.ready_event.wait(LOOK_INTERVAL):
                return True
        return False

    def _wait_for_server(self) -> bool:
        """Whether the server serves, which it does not when its checks fail."""
        deadline = time.monotonic() + LONGEST_CHECKS
        while self._waits_for_runserver and not _is_serving():
            if time.monotonic() > deadline:
                return _may_still_serve()
            time.sleep(LOOK_INTERVAL)
            if self._stopping.requested:
                return False
        return True

    def _work(self) -> None:
        options = WorkerOptions.from_settings(workers=self.workers, grace=self._grace)
        drivers = drivers_of(options)  # raises here, once, for connections that cannot work
        problems = [problem for driver in drivers for problem in driver.setting_problems()]
        if problems:  # a store that is out of reach may come back; this needs a person
            logger.error(
                "The embedded workers do not start; the web server goes on without them. %s", " ".join(problems)
            )
            return
        load_handlers()
        pool = Pool(options, stopping=self._stopping, abandon=lambda code: self._finished.set(), is_embedded=True)
        pool.start()
        pool.join()


def start(workers: int | None = None) -> Embedded:
    """Start workers in threads of this process, once, and return at once; they end when the process exits.

    ``workers`` is how many; None is what EMBEDDED_WORKERS says, and 1 when that says nothing. Where a server loads
    the application before it forks (``gunicorn --preload``), call it in the hook that runs after the fork: threads
    do not survive one, and what they lock just then stays locked in the child.
    """
    if workers is None:
        workers = get_settings().embedded_workers
    return _start(1 if workers is None else workers and check_count("workers", workers), EXIT_GRACE)


def stop() -> None:
    """Stop what ``start()`` started; without it, nothing happens."""
    if _current is not None:
        _current.stop()


def start_under_runserver() -> None:
    """Called when the apps are loaded: start workers if this is the serving process of ``runserver``.

    Neither the database nor a job module is touched before the server serves.
    """
    if not _is_runserver() or not (workers := _wanted_under_runserver()):
        return
    _exit_cleanly_on_sigterm()
    _start(workers, DEVELOPMENT_GRACE, waits_for_runserver=True)


def _start(workers: int, grace: float, *, waits_for_runserver: bool = False) -> Embedded:
    global _current
    with _lock:
        if _current is None or not _current.is_running:
            if _current is None:
                atexit.register(stop)
            _current = Embedded(workers, grace, waits_for_runserver=waits_for_runserver)
        return _current


def _is_runserver() -> bool:
    """Not the reloader's parent, which only watches over the process that serves."""
    if sys.argv[1:2] != ["runserver"]:
        return False
    return os.environ.get(DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in sys.argv


def _wanted_under_runserver() -> int:
    try:
        workers = get_settings().embedded_workers
    except ImproperlyConfigured:
        return 0  # the server's own checks say what is wrong
    return int(django_settings.DEBUG) if workers is None else workers


def _exit_cleanly_on_sigterm() -> None:
    """As Django's reloader does; without it, a server that does not reload is killed before it can give back."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)


def _is_serving() -> bool:
    """Whether a thread is in the loop of Django's development server; that has no other sign that its checks passed."""
    loop = BaseServer.serve_forever.__code__
    for frame in sys._current_frames().values():
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code is loop:
                return True
            caller = caller.f_back
    return False


def _may_still_serve() -> bool:
    is_reloaded = os.environ.get(DJANGO_AUTORELOAD_ENV) == "true"
    return not is_reloaded or any(thread.name == DJANGO_THREAD for thread in all_threads())


_current: Embedded | None = None
_lock = Lock()

__all__ = ["Embedded", "start", "stop"]
