"""Dispatches that wait for a commit, since their store cannot join the transaction.

Django drops every later callback when one raises. So the first push that fails speaks for all that still waited:
each is logged with what is needed to repeat it, and then the error is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from weakref import WeakKeyDictionary, WeakSet

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..jobs.flows import readable
from ..jobs.payloads import masked_payload
from ..jobs.records import NewJob

logger = logging.getLogger("django_jobqueue")

_numbers = count()
# Of each thread's connection, those that a savepoint or a rollback has not dropped: nobody but Django keeps them.
_waiting: WeakKeyDictionary[BaseDatabaseWrapper, WeakSet[_Waiting]] = WeakKeyDictionary()


class _Waiting:
    """Jobs that are pushed after the commit; called once, by Django."""

    def __init__(self, alias: str, jobs: Sequence[NewJob], push: Callable[[], object], connection: str) -> None:
        self.number = next(_numbers)
        self.jobs = jobs
        self.connection = connection
        self._alias = alias
        self._push = push

    def __call__(self) -> None:
        others = _waiting.get(connections[self._alias], WeakSet())
        others.discard(self)
        try:
            self._push()
        except Exception as error:
            lost = [self, *sorted(others, key=lambda waiting: waiting.number)]
            others.clear()
            for waiting in lost:
                waiting.log(error)
            raise

    def log(self, error: Exception) -> None:
        for job in self.jobs:
            logger.error(
                "job %s (%s) was not stored on %r after the commit: %s; queue %r, priority %s, delay %s, "
                "available at %s, metadata %s, arguments %s%s",
                job.id,
                job.name,
                self.connection,
                " ".join(str(error).split()),
                job.queue,
                -job.rank,
                job.delay,
                job.available_at,
                job.metadata or "{}",
                masked_payload(job.payload, job.masked),
                _followers(job.flow),
                extra={
                    "event": "dispatch_failed",
                    "job": job.name,
                    "id": str(job.id),
                    "queue": job.queue,
                    "connection": self.connection,
                },
            )


def _followers(flow: str | None) -> str:
    """The later steps of its chain, which are lost with it."""
    return "".join(
        f"; then {step.job.name} {masked_payload(step.job.payload, step.job.masked)} in {step.job.queue!r} of "
        f"{step.connection!r}"
        for step in readable(flow).steps
    )


def push_after_commit(alias: str, connection: str, jobs: Sequence[NewJob], push: Callable[[], object]) -> None:
    """Call ``push`` after the commit of the transaction that is open on the database ``alias``."""
    waiting = _Waiting(alias, jobs, push, connection)
    _waiting.setdefault(connections[alias], WeakSet()).add(waiting)
    transaction.on_commit(waiting, using=alias)
