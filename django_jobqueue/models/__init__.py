"""The tables. Only drivers, the admin and checks may import them."""

from __future__ import annotations

from .batch import Batch, BatchMember
from .failed_job import FailedJob
from .fields import ClockField, StoreNow
from .job import Job
from .progress import Progress
from .queue_stat import QueueStat
from .result import Result
from .worker import Worker, WorkerRequest

__all__ = [
    "Batch",
    "BatchMember",
    "ClockField",
    "FailedJob",
    "Job",
    "Progress",
    "QueueStat",
    "Result",
    "StoreNow",
    "Worker",
    "WorkerRequest",
]
