"""Drivers that kill their process while it takes jobs out of their store, as SIGKILL from outside would by chance."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import UUID

from django_jobqueue.drivers import Driver
from django_jobqueue.drivers.database import DatabaseDriver
from django_jobqueue.drivers.redis import RedisDriver

#: After how many jobs were taken out.
DIES_AFTER_VARIABLE = "JOBQUEUE_TEST_DIES_AFTER"


class Dying(Driver):
    """Before a driver in the order of classes; without the variable it is like that one."""

    _cancelled = 0

    def cancel(self, job_id: UUID) -> Any:
        if str(self._cancelled) == os.environ.get(DIES_AFTER_VARIABLE):
            os.kill(os.getpid(), signal.SIGKILL)
        self._cancelled += 1
        return super().cancel(job_id)


class DyingDatabaseDriver(Dying, DatabaseDriver):
    """The database's."""


class DyingRedisDriver(Dying, RedisDriver):
    """Redis'."""
