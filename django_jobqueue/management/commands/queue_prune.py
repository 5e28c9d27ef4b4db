"""``queue_prune``: delete what is older than the setting PRUNE, or a flag, says."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...conf import PRUNED_AFTER, get_settings
from ...operations import pruning
from ..console import Console, add_json, age, check_store, count, counted, plain_errors

MEANINGS = {"FAILED": "failed jobs, by when they failed", "WORKERS": "worker processes, by their last heartbeat"}


class Command(BaseCommand):
    help = (
        "Delete what is older than JOBQUEUE['PRUNE'] says, in small transactions. A flag says something else for its "
        "kind; with any flag, only what flags name is deleted. Workers do the same by themselves."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        for what in PRUNED_AFTER:
            parser.add_argument(
                f"--{what.lower()}", metavar="AGE", help=f"{MEANINGS[what]}: older than AGE, such as 90, 10m, 2h or 30d"
            )
        parser.add_argument("--chunk", metavar="N", help=f"delete N rows at once (default: {pruning.CHUNK})")
        parser.add_argument("--dry-run", action="store_true", help="delete nothing, and tell how many there are")
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with plain_errors():
            given = {what: age(f"--{what.lower()}", options[what.lower()]) for what in PRUNED_AFTER}
            chunk = count("--chunk", options["chunk"]) or pruning.CHUNK
        check_store(None)
        ages = {what: limit for what, limit in given.items() if limit is not None}
        if not ages:
            ages = {what: limit for what, limit in get_settings().prune.items() if limit is not None}
        with plain_errors():
            if options["dry_run"]:
                for what, number in pruning.count_old(ages).items():
                    _show(console, what, number, "would be deleted")
                return
            for what, limit in ages.items():
                _show(console, what, sum(pruning.prune(what, limit, chunk=chunk)), "deleted")


def _show(console: Console, what: str, number: int, did: str) -> None:
    if console.is_terminal:
        console.write(f"{what.lower()}: {counted(number, 'row')} {did}.")
    else:
        console.record(what=what.lower(), status=did.replace(" ", "_"), count=number)
