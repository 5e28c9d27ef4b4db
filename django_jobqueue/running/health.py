"""The file whose age tells something outside, such as a container's health check, whether the workers do their work.

It is touched only when a heartbeat was stored and every loop of every process turns, or is at a job whose time is not
over: a thread of its own that touched it would tell nothing but that threads run.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger("django_jobqueue")


class HealthFile:
    """``path`` is None where nobody wants one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._has_complained = False

    def touch(self) -> None:
        """Say that all is well now; what the disk refuses ends nothing, and is logged once."""
        if self._path is None:
            return
        try:
            self._path.touch()
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                logger.error(
                    "The health file %s cannot be touched: %s",
                    self._path,
                    error.strerror,
                    extra={"event": "health_file_refused", "path": str(self._path)},
                )

    def remove(self) -> None:
        """At the end: the next process must not look well before it is."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
