"""What every rule is given, and what it yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the checker must know of the soak.

    ``outage_after`` is for how long after a server is back its workers may still find their way. Where
    ``stops_concern_all``, as on SQLite, a stopped process may hold the only write lock. Unless a store
    ``joins_transactions``, the jobs of one may be stored one by one after its commit.
    """

    retry_after: float
    outage_after: float = 3.0
    stops_concern_all: bool = False
    joins_transactions: bool = True


class Violation(NamedTuple):
    """``rule`` is a word that the summary counts; ``text`` is for a person."""

    rule: str
    key: str
    text: str
