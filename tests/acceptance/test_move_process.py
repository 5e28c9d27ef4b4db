"""``queue_move`` in processes of its own, which are killed half-way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

from django_jobqueue.drivers import connections
from django_jobqueue.operations.moving import PAGE
from tests.drivers.contract import ids, new
from tests.helpers.dying import DIES_AFTER_VARIABLE
from tests.helpers.processes import Processes
from tests.helpers.redis import entry, wipe

pytestmark = [pytest.mark.process, pytest.mark.redis]

JOBS = PAGE + PAGE // 2
# A page was stored in its new place, and none, or some, have left the old one.
DEATHS = (0, PAGE // 3)
DYING = {"default": "tests.helpers.dying.DyingDatabaseDriver", "fast": "tests.helpers.dying.DyingRedisDriver"}


@pytest.fixture
def moving(processes: Processes, settings: Any) -> Iterator[Processes]:
    """Commands, and this process, with a connection to the database and one to Redis."""
    configured = {"default": {"DRIVER": "database", "DATABASE": "default"}, "fast": entry()}
    settings.JOBQUEUE = {"CONNECTIONS": configured}
    dying = {alias: {**options, "DRIVER": DYING[alias]} for alias, options in configured.items()}
    processes.settings["JOBQUEUE"] |= {"CONNECTIONS": dying}
    yield processes
    processes.end_all()
    wipe(connections["fast"])


@pytest.mark.parametrize(("source", "target"), [("default", "fast"), ("fast", "default")])
def test_killed_half_way_and_run_again_it_loses_none_and_doubles_none(
    moving: Processes, source: str, target: str
) -> None:
    old, new_place = connections[source], connections[target]
    jobs = [
        new(queue="mail", rank=number % 5, **({"delay": 3600} if number % 3 == 0 else {})) for number in range(JOBS)
    ]
    old.push(jobs)
    command = ("queue_move", "mail", "--from", source, "--to", target)

    def places() -> list[list[Any]]:
        return [[record.id for record in driver.waiting("mail", limit=2 * JOBS)] for driver in (old, new_place)]

    for death in DEATHS:
        moving.environment[DIES_AFTER_VARIABLE] = str(death)
        killed = moving.start(*command)
        assert killed.wait() == -signal.SIGKILL
        left, arrived = places()
        assert {*left, *arrived} == ids(jobs), "none is lost"
        assert set(left) & set(arrived), "it was killed while some were in both"
    del moving.environment[DIES_AFTER_VARIABLE]
    done = moving.run(*command)
    assert done.wait() == 0, done.output
    left, arrived = places()
    assert left == []
    assert len(arrived) == JOBS
    assert set(arrived) == ids(jobs)
    size = new_place.sizes()["mail"]
    late = len(range(0, JOBS, 3))
    assert (size.ready, size.scheduled, size.reserved) == (JOBS - late, late, 0)
