"""For development: the loops end, each after its job, when a file of the code has changed.

Django's autoreloader does the watching. Its way of ending and starting a process is not used: that gives nothing back,
and a supervisor does it better.
"""

from __future__ import annotations

from threading import Thread

from django.utils.autoreload import autoreload_started, get_reloader

from .restarting import Restart

RELOAD = "reload"


def watch_files(restart: Restart) -> None:
    """Watch what this process has imported, from a thread of its own."""
    Thread(target=_watch, args=(restart,), name="jobqueue-reloader", daemon=True).start()


def _watch(restart: Restart) -> None:
    reloader = get_reloader()
    autoreload_started.send(sender=reloader)
    try:
        reloader.run_loop()
    except SystemExit:  # by which it would end a process whose code has changed
        restart.ask(RELOAD)
