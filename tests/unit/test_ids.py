"""Job ids."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import UUID

import pytest

from django_jobqueue.jobs.ids import new_job_id
from tests.drivers.contract import at_once


def test_an_id_is_a_time_ordered_uuid() -> None:
    made = new_job_id()
    assert type(made) is UUID
    assert made.version == 7


def test_ids_of_one_process_ascend_in_the_order_of_making() -> None:
    made = [new_job_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_their_text_ascends_too() -> None:
    made = [str(new_job_id()) for _ in range(1000)]
    assert made == sorted(made)


def test_threads_never_make_the_same_id() -> None:
    made = [each for found in at_once(4, lambda: [new_job_id() for _ in range(5000)]) for each in found]
    assert len(set(made)) == len(made)


FORKS = """
import os
from django_jobqueue.jobs.ids import new_job_id, new_token

new_job_id(), new_token()
for _ in range(2):
    if os.fork() == 0:
        print(new_job_id().hex[16:], new_token().hex, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_two_forks_of_one_process_never_make_the_same_ones() -> None:
    """As the workers of a server that forks do: the second of two jobs with one id would be taken for the first."""
    told = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    made = told.stdout.split()
    assert len(made) == len(set(made)) == 4
