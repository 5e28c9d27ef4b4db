"""``queue_work`` under a supervisor, as a soak starts it: it stops when its standard input, and so the soak, ends."""

from __future__ import annotations

import os
import signal
from threading import Thread
from typing import Any

from django_jobqueue.management.commands import queue_work


class Command(queue_work.Command):
    help = "A worker of a soak; not to be called by hand."

    def handle(self, *args: Any, **given: Any) -> None:
        if not given["supervised"]:
            Thread(target=_stop_at_the_end, daemon=True).start()
        super().handle(*args, **given)


def _stop_at_the_end() -> None:
    while os.read(0, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
