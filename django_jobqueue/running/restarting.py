"""Whether the loops of a process shall end, each after its job, for the process to start afresh with new code.

Asked through the store, by ``queue_restart``, and looked for by the housekeeper: no loop waits for a database that it
does not serve. Only what was asked after the start of this process counts: that is told
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


class Restart:
    """The loops of a process share one; ``reason`` is empty until it was asked for. Without ledgers nobody asks."""

    def __init__(self, ledgers: Sequence[Ledger] = ()) -> None:
        self.reason = ""
        self._ledgers = ledgers
        self._known: dict[str, datetime | None] = {}

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    def look(self) -> None:
        """What a store cannot answer is asked again at the next look."""
        for ledger in self._ledgers:
            with suppress(*ledger.outages):
                self._look(ledger, time.monotonic() - STARTED)

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
