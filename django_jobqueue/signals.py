"""The signals, and nothing else: past tense for facts.

All are sent with ``send_robust``: a receiver that raises is logged by Django and changes no job's fate.
None carries the payload. Common arguments of the job signals: ``id`` (UUID), ``name``, ``queue``,
``connection`` and its ``driver`` ("database", "redis" or "memory"). ``attempt`` counts from 1;
``elapsed`` and ``waited`` are seconds as floats; ``max_attempts`` is the limit that applied to this
attempt. The sender is the driver class, or the worker class for the worker signals.
"""

from __future__ import annotations

from django.dispatch import Signal

job_dispatched = Signal()  # id, name, queue, connection, driver
job_starting = Signal()  # id, name, queue, connection, driver, attempt, max_attempts, waited
job_processed = Signal()  # id, name, queue, connection, driver, attempt, max_attempts, waited, elapsed

# Every failed attempt: as job_processed, exception_class, exception_message, traceback, dead_lettered, delay
# (seconds until the next attempt, None for a dead letter).
job_failed = Signal()

# A release that spent no attempt: as job_processed, delay.
job_released = Signal()

job_retried = Signal()  # id, name, queue, connection, driver
job_lost = Signal()  # id, name, queue, connection, driver, attempt, max_attempts, waited, elapsed
job_cancelled = Signal()  # id, name, queue, connection, driver

batch_finished = Signal()  # id (UUID), name, connection, driver, total, done, failed, cancelled

worker_started = Signal()  # worker (identity), queues
worker_stopping = Signal()  # worker, reason
worker_stopped = Signal()  # worker, reason, stats
