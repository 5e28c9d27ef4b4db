"""A background job queue for Django that needs nothing but the database the project already has.

This module is importable before settings are configured, and loads no model.
"""

from __future__ import annotations

from .dispatching.batches import DispatchedBatch, batch
from .dispatching.chains import DispatchedChain, chain
from .dispatching.dispatch import Dispatched
from .dispatching.handler import adispatch, dispatch, dispatch_later, dispatch_many, job, using
from .exceptions import (
    AlreadyRetried,
    InvalidConnection,
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    JobQueueError,
    JobTimeout,
    ReservationLost,
    UnknownJob,
)
from .jobs.context import JobContext, current_job
from .jobs.payloads import PREVIOUS
from .jobs.retry import Exponential
from .operations.batches import get_batch
from .operations.lookup import get_job
from .operations.progress import progress_token

__version__ = "0.1.0"

__all__ = [
    "PREVIOUS",
    "AlreadyRetried",
    "Dispatched",
    "DispatchedBatch",
    "DispatchedChain",
    "Exponential",
    "InvalidConnection",
    "InvalidOption",
    "InvalidPayload",
    "JobCancelled",
    "JobContext",
    "JobQueueError",
    "JobTimeout",
    "ReservationLost",
    "UnknownJob",
    "adispatch",
    "batch",
    "chain",
    "current_job",
    "dispatch",
    "dispatch_later",
    "dispatch_many",
    "get_batch",
    "get_job",
    "job",
    "progress_token",
    "using",
]
