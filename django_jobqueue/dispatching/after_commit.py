"""Dispatches that wait for a commit, since their store cannot join the transaction.

Django drops every later callback when one raises. So the first push that fails speaks for all that still waited:
each is logged with what is needed to repeat it, and then the error is raised. What was pushed before it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import count
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..jobs.errors import message_of, printable
from ..jobs.records import NewJob
from .lost import WaitingBatch, log_batch, log_job

_numbers = count()
# Of each thread's connection, those that a savepoint or a rollback has not dropped: nobody but Django keeps them.
_waiting: WeakKeyDictionary[BaseDatabaseWrapper, WeakSet[_Waiting]] = WeakKeyDictionary()


class _Waiting:
    """Jobs that are pushed after the commit, or the beginning of a batch; called once, by Django."""

    def __init__(
        self,
        alias: str,
        connection: str,
        jobs: Sequence[NewJob],
        push: Callable[[], object],
        batch: WaitingBatch | None,
    ) -> None:
        self.number = next(_numbers)
        self.connection = connection
        self.jobs = jobs
        self.batch = batch
        self._alias = alias
        self._push = push

    def __call__(self) -> None:
        others = _waiting.get(connections[self._alias], WeakSet())
        others.discard(self)
        try:
            self._push()
        except BaseException as error:  # a timeout of the job that dispatches, too
            lost = [self, *sorted(others, key=lambda waiting: waiting.number)]
            others.clear()
            _log(lost, printable(message_of(error)))
            raise
        if self.batch is not None:
            self.batch.has_begun = True


def _log(lost: Sequence[_Waiting], reason: str) -> None:
    """A batch, or what is left of it, comes before its jobs."""
    sizes: Counter[WaitingBatch] = Counter()
    for waiting in lost:
        if waiting.batch is not None:
            sizes[waiting.batch] += len(waiting.jobs)
    for waiting in lost:
        batch = waiting.batch
        if batch is not None and batch in sizes:
            log_batch(batch, sizes.pop(batch), waiting.connection, reason)
        for job in waiting.jobs:
            log_job(job, waiting.connection, reason)


def push_after_commit(
    alias: str,
    connection: str,
    jobs: Sequence[NewJob],
    push: Callable[[], object],
    batch: WaitingBatch | None = None,
) -> None:
    """Call ``push``, which stores ``jobs`` or begins ``batch``, after the commit of the database ``alias``."""
    waiting = _Waiting(alias, connection, jobs, push, batch)
    _waiting.setdefault(connections[alias], WeakSet()).add(waiting)
    transaction.on_commit(waiting, using=alias)


def waits_for_commit(ids: Collection[UUID]) -> bool:
    """Whether a job or batch of these ids is dispatched after a commit that this thread has not made yet."""
    return any(
        (waiting.batch is not None and waiting.batch.id in ids) or any(job.id in ids for job in waiting.jobs)
        for connection in connections.all(initialized_only=True)
        for waiting in _waiting.get(connection, ())
    )
