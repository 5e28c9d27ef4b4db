"""Job ids, known before anything is stored, and the tokens of reservations.

Ids are UUIDv7 from one generator per process. Two of one process never compare in the wrong order, so that ties on
``ready_at`` run in the order of dispatch. Nothing else may rest on their order: it is the application host's clock, not
the store's.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from uuid import uuid4 as new_token
    from uuid import uuid7 as new_job_id
else:
    from uuid_utils.compat import uuid4 as new_token
    from uuid_utils.compat import uuid7 as new_job_id

__all__ = ["new_job_id", "new_token"]
