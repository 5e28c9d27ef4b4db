"""What becomes of an expired reservation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils.module_loading import import_string

from django_jobqueue.exceptions import ReservationLost
from django_jobqueue.jobs.errors import MAX_MESSAGE, fingerprint
from django_jobqueue.jobs.rescue import unfinished, verdict

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("alone", "attempts", "retry_until", "expected"),
    [
        (False, 1, None, "give_back"),
        (False, 3, None, "give_back"),
        (False, 1, NOW - SECOND, "give_back"),
        (True, 1, None, "try_again"),
        (True, 2, NOW + SECOND, "try_again"),
        (True, 2, NOW, "try_again"),
        (True, 3, None, "dead_letter"),
        (True, 4, None, "dead_letter"),
        (True, 1, NOW - SECOND, "dead_letter"),
    ],
)
def test_a_lost_job_is_judged_by_its_reservation_and_its_limits(
    alone: bool, attempts: int, retry_until: datetime | None, expected: str
) -> None:
    found = verdict(alone=alone, attempts=attempts, max_attempts=3, retry_until=retry_until, now=NOW)
    assert found == expected


def test_the_record_of_a_lost_attempt_says_how_often_and_where() -> None:
    record = unfinished(3, "host:7", NOW - 100 * SECOND, NOW - 90 * SECOND, NOW)
    assert (record.number, record.worker, record.waited, record.ran) == (3, "host:7", 10.0, 90.0)
    assert record.started == "2029-12-31T23:58:30+00:00"
    assert record.message == "Reserved 3 times without finishing; its worker 'host:7' was lost."
    assert import_string(record.exception_class) is ReservationLost


def test_lost_attempts_of_a_job_are_one_cause_whichever_worker_was_lost() -> None:
    marks = {
        fingerprint("shop.sync", "Lost", unfinished(number, worker, NOW, NOW, NOW).message, "")
        for number, worker in [(2, "host:7"), (3, "Büro:8"), (9, "other host")]
    }
    assert len(marks) == 1


def test_the_message_fits_its_column() -> None:
    assert len(unfinished(2**31, "w" * 150, NOW, NOW, NOW).message) <= MAX_MESSAGE


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    record = unfinished(1, "w", NOW + 2 * SECOND, NOW + SECOND, NOW)
    assert (record.waited, record.ran) == (0.0, 0.0)
