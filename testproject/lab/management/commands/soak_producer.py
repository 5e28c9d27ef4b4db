"""One producer of `soak`, which starts it: dispatch jobs until standard input is closed. Not for people."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from threading import Event, Thread
from typing import Any

from django.core.management.base import BaseCommand

from ...soaking.producing import Producer


class Command(BaseCommand):
    help = "A producer of the command soak, which starts it. Not for people."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--number", type=int, required=True)
        parser.add_argument("--rate", type=float, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        stopping = Event()
        Thread(target=_wait_for_end, args=[stopping], daemon=True).start()
        Producer(options["number"], options["rate"], stopping).run()


def _wait_for_end(stopping: Event) -> None:
    """The soak closes the pipe, or is gone."""
    sys.stdin.buffer.read()
    stopping.set()
