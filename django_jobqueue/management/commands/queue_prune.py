"""``queue_prune``: delete what is older than the setting PRUNE, or a flag, says; roll up counts of old minutes."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ...conf import PRUNED_AFTER, PRUNED_IN_STORES, get_settings
from ...exceptions import InvalidOption
from ...operations import pruning
from ..console import Console, add_json, age, check_store, count, counted, plain_errors

MEANINGS = {
    "FAILED": "failed jobs, by when they failed",
    "WORKERS": "worker processes, by their last heartbeat",
    "STATS": "counts of what was done, by their minute",
    "BATCHES": "batches, by when they ended",
    "PROGRESS": "progress of jobs, by when it was reported",
}


class Command(BaseCommand):
    help = (
        "Delete what is older than JOBQUEUE['PRUNE'] says, and expired results, in small transactions. A flag says "
        "something else for its kind; with any flag, only what flags name is deleted. After the counts of what was "
        "done, those of minutes that are a day old are rolled up to hours. Workers do all of this by themselves too."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        for what in PRUNED_AFTER:
            parser.add_argument(
                f"--{what.lower()}", metavar="AGE", help=f"{MEANINGS[what]}: older than AGE, such as 90, 10m, 2h or 30d"
            )
        parser.add_argument("--chunk", metavar="N", help=f"delete N rows at once (default: {pruning.CHUNK})")
        parser.add_argument(
            "--dry-run", action="store_true", help="delete nothing, and count failed jobs, workers and stats"
        )
        add_json(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        console = Console(self, options)
        with plain_errors():
            given = {what: age(f"--{what.lower()}", options[what.lower()]) for what in PRUNED_AFTER}
            chunk = count("--chunk", options["chunk"]) or pruning.CHUNK
            ages = {what: limit for what, limit in given.items() if limit is not None}
            uncounted = sorted(ages.keys() & PRUNED_IN_STORES.keys())
            if options["dry_run"] and uncounted:
                raise InvalidOption(f"--dry-run cannot count {uncounted[0].lower()}; leave one of the two flags out.")
        check_store(None)
        is_everything = not ages
        if is_everything:
            ages = {what: limit for what, limit in get_settings().prune.items() if limit is not None}
        with plain_errors():
            if options["dry_run"]:
                counted_ages = {what: limit for what, limit in ages.items() if what not in PRUNED_IN_STORES}
                for what, number in pruning.count_old(counted_ages).items():
                    _show(console, what, number, "would be deleted")
                return
            for what, limit in [*ages.items(), *([(pruning.RESULTS, None)] if is_everything else [])]:
                _show(console, what, sum(pruning.prune(what, limit, chunk=chunk)), "deleted")
            if is_everything or "STATS" in ages:
                _show(console, "MINUTES", sum(pruning.roll_up(chunk=chunk)), "rolled up")


def _show(console: Console, what: str, number: int, did: str) -> None:
    if console.is_terminal:
        console.write(f"{what.lower()}: {counted(number, 'row')} {did}.")
    else:
        console.record(what=what.lower(), status=did.replace(" ", "_"), count=number)
