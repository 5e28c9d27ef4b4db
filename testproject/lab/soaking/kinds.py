"""The kinds of jobs that a soak dispatches, how often, and what may become of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EFFECT_TABLE = "jobqueue_soak_effect"
# So many that no run of bad luck makes a dead letter of a job that is sound.
MANY_ATTEMPTS = 50
ATTEMPTS_OF_ALWAYS = 3
HANDLERS = "lab.soaking.handlers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``weight`` is how many of a thousand jobs are of this kind, of those that are in no chain and no batch.

    ``seconds`` and ``delay`` are ranges to draw from.

    A sound job is never a dead letter; the time of a long one is counted in reservations.
    """

    handler: str
    weight: int
    seconds: tuple[float, float] | None = None
    delay: tuple[float, float] | None = None
    arguments: tuple[Any, ...] = ()
    is_sound: bool = True
    is_long: bool = False
    is_atomic: bool = False

    @property
    def job_name(self) -> str:
        return HANDLERS + self.handler


KINDS = {
    "quick": Kind(handler="sound", weight=700),
    "each": Kind(handler="each", weight=40),
    "delayed": Kind(handler="sound", weight=80, delay=(0.2, 3.0)),
    "brief": Kind(handler="sound", weight=15, seconds=(0.01, 0.08)),
    "slow": Kind(handler="sound", weight=6, seconds=(0.2, 0.6)),
    "long": Kind(handler="sound", weight=1, seconds=(1.1, 1.6), is_long=True),
    "once": Kind(handler="once", weight=30),
    "always": Kind(handler="always", weight=15, is_sound=False),
    "single": Kind(handler="single", weight=13, seconds=(0.0, 0.1), is_sound=False),
    "atomic": Kind(handler="atomic", weight=90, is_atomic=True),
    "atomic once": Kind(handler="atomic", weight=10, arguments=(True,), is_atomic=True),
    # Parts of chains and batches, as "quick", "once" and "always" are too
    "step": Kind(handler="step", weight=0),
    "callback": Kind(handler="sound", weight=0),
}
CHILD = "quick"
