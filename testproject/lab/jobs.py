"""The jobs that `bench` dispatches: each stamps the tally first, and does as little as it says.

Run by a worker that has no tally open, as ``queue_work`` runs what a killed bench has left, they do nothing.
"""

from __future__ import annotations

import time

from django_jobqueue import job

from .benchmark import tally

MILLISECOND = 0.001


@job(queue="bench-noop")
def noop(index: int) -> None:
    tally.hit(index)


@job(queue="bench-each", settle="each")
def noop_each(index: int) -> None:
    tally.hit(index)


@job(queue="bench-atomic", atomic=True)
def noop_atomic(index: int) -> None:
    tally.hit(index)


@job(queue="bench-kept", keep_result=60)
def noop_kept(index: int) -> int:
    tally.hit(index)
    return index


@job(queue="bench-ms")
def one_millisecond(index: int) -> None:
    tally.hit(index)
    time.sleep(MILLISECOND)


@job(queue="bench-mixed")
def mixed(index: int, milliseconds: int) -> None:
    tally.hit(index)
    time.sleep(milliseconds * MILLISECOND)
