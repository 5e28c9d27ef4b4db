"""Whether the loops of a process shall end, each after its job, for the process to start afresh with new code.

Asked through the store, by ``queue_restart``. Only what was asked after the start of this process counts: that is told
by the store's clock, or by a moment that changes, and never by the clocks of two hosts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from ..jobs.workers import RESTART
from .housekeeping import STARTED

if TYPE_CHECKING:  # at import it would load the models, and this may be imported before the apps are ready
    from ..drivers.ledger import Ledger

LOOK_INTERVAL = 1.0


class Restart:
    """The loops of a process share one; ``reason`` is empty until it was asked for. Without ledgers nobody asks."""

    def __init__(self, ledgers: Sequence[Ledger] = ()) -> None:
        self.reason = ""
        self._ledgers = ledgers
        self._known: dict[str, datetime | None] = {}
        self._look_at = 0.0

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    def look_when_due(self) -> None:
        """Look once a second, whichever loop comes first; what a store cannot answer is asked again."""
        now = time.monotonic()
        if now < self._look_at or self.reason:
            return
        self._look_at = now + LOOK_INTERVAL
        for ledger in self._ledgers:
            with suppress(*ledger.outages):
                self._look(ledger, now - STARTED)

    def _look(self, ledger: Ledger, ran: float) -> None:
        wish = ledger.asked(RESTART)
        moment = None if wish is None else wish.asked_at
        if ledger.database not in self._known:
            self._known[ledger.database] = moment
            is_new = wish is not None and wish.ago < ran
        else:
            is_new = moment is not None and moment != self._known[ledger.database]
        if is_new:
            self.ask(RESTART)
