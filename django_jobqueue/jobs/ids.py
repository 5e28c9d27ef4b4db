"""Job ids: UUIDv7 from one generator per process, known before anything is stored.

Two ids of one process never compare in the wrong order, so that ties on ``ready_at`` run in the order of
dispatch. Nothing else may rest on their order: it is the application host's clock, not the store's.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from uuid import uuid7 as new_job_id
else:
    from uuid_utils.compat import uuid7 as new_job_id

__all__ = ["new_job_id"]
