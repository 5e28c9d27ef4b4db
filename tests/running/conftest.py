"""The fixtures of jobs that are run."""

from __future__ import annotations

from tests.helpers.fixtures import archive, clock, database, driver, heard, make_worker, memory, register, worker
from tests.helpers.flaky import flaky, two
from tests.helpers.gates import abandoned, gate, start
from tests.helpers.notes import done
from tests.helpers.simulation import simulation
from tests.helpers.slow import held

__all__ = [
    "abandoned",
    "archive",
    "clock",
    "database",
    "done",
    "driver",
    "flaky",
    "gate",
    "heard",
    "held",
    "make_worker",
    "memory",
    "register",
    "simulation",
    "start",
    "two",
    "worker",
]
