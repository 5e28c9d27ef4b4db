"""One process of `bench`, which starts it: ready, wait for the gate, run jobs, report.

Not for people. With ``--bare`` it calls the handler in a loop instead, which is what the handlers alone allow.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.test.utils import override_settings

from django_jobqueue.dispatching.discovery import load_handlers
from django_jobqueue.jobs.registry import registry
from django_jobqueue.running.options import WorkerOptions
from django_jobqueue.running.pool import Pool
from django_jobqueue.running.stopping import Stopping, obeying_signals

from ...benchmark import tally
from ...benchmark.workers import READY_LINE, own_bytes

# A worker whose bench was killed ends by itself.
LONGEST_RUN = 3600


class Command(BaseCommand):
    help = "A worker process of the command bench, which starts it. Not for people."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tally", type=Path, required=True)
        parser.add_argument("--size", type=int, required=True)
        parser.add_argument("--lane", type=int, required=True)
        parser.add_argument("--store", default="default")
        parser.add_argument("--queue", default="")
        parser.add_argument("--stay", action="store_true")
        parser.add_argument("--bare", nargs=3, metavar=("JOB", "FIRST", "END"))

    def handle(self, *args: Any, **options: Any) -> None:
        load_handlers()
        opened = tally.Tally(options["tally"], options["size"], options["lane"])
        self.stdout.write(READY_LINE)
        self.stdout.flush()
        if not sys.stdin.readline():
            return  # the bench is gone
        memory, processor = _memory(), time.process_time()
        # Under DEBUG Django keeps every query.
        with override_settings(DEBUG=False), tally.hitting(opened):
            if options["bare"]:
                _call(*options["bare"])
            else:
                _work(options["store"], options["queue"], options["stay"])
        report = {
            "ended": time.monotonic_ns(),
            "processor_seconds": time.process_time() - processor,
            "memory_before": memory,
            "memory_after": _memory(),
        }
        self.stdout.write(json.dumps(report))


def _work(store: str, queue: str, is_staying: bool) -> None:
    options = WorkerOptions.from_settings(
        stop_when_empty=not is_staying, queues=(queue,), connections=(store,), max_time=LONGEST_RUN
    )
    stopping = Stopping()
    with obeying_signals(stopping):
        Pool(options, stopping=stopping).run()


def _call(job: str, first: str, end: str) -> None:
    handler = registry.get(job).func
    for index in range(int(first), int(end)):
        handler(index)


def _memory() -> int:
    return own_bytes(os.getpid()) or 0
