"""The fixtures of jobs that are run."""

from __future__ import annotations

from tests.helpers.fixtures import archive, clock, database, driver, heard, make_worker, memory, register, worker
from tests.helpers.gates import abandoned, gate, start
from tests.helpers.simulation import simulation

__all__ = [
    "abandoned",
    "archive",
    "clock",
    "database",
    "driver",
    "gate",
    "heard",
    "make_worker",
    "memory",
    "register",
    "simulation",
    "start",
    "worker",
]
