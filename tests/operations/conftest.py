"""The fixtures of what people do to queues."""

from __future__ import annotations

from tests.helpers.fixtures import archive, clock, database, driver, heard, make_worker, memory, register, worker

__all__ = ["archive", "clock", "database", "driver", "heard", "make_worker", "memory", "register", "worker"]
