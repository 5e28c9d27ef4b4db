"""A store that is out of reach: logged once, tried again with growing pauses, and said to be back."""

from __future__ import annotations

import logging
import time
from typing import Self

from ..drivers import Driver

logger = logging.getLogger("django_jobqueue")


class StoreHealth:
    """What one loop knows of one store.

    It is back when a whole turn of the loop went well: in a failover a store reads before it writes again.
    """

    def __init__(self, driver: Driver, first_pause: float, longest_pause: float) -> None:
        self.driver = driver
        self._first_pause = min(first_pause, longest_pause)
        self._longest_pause = longest_pause
        self._pause = self._first_pause
        self._down_since: float | None = None
        self._next_try = 0.0
        self._works = self._is_busy = False  # in this turn

    @property
    def is_down(self) -> bool:
        return self._down_since is not None

    @property
    def may_try(self) -> bool:
        """Whether the store is up, or its pause is over."""
        return self._down_since is None or time.monotonic() >= self._next_try

    @property
    def has_answered(self) -> bool:
        """Whether what this turn did not find is not there: the store is neither down nor busy."""
        return self._down_since is None and not self._is_busy

    def hurry(self) -> None:
        """Try again at once: a worker that is stopping cannot wait."""
        self._next_try = 0.0

    def seconds_to_next_try(self) -> float:
        return max(0.0, self._next_try - time.monotonic()) if self.is_down else 0.0

    def reaching(self) -> Self:
        """Use the store in a ``with`` block; its outages end the block silently, all else is raised."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self._works = True
        elif not isinstance(error, self.driver.outages):
            return False
        elif self.driver.is_busy(error):
            self._is_busy = True
        else:
            self._fails(error)
        return True

    def _fails(self, error: BaseException) -> None:
        self._works = False
        self.driver.close()
        now = time.monotonic()
        if self._down_since is None:
            self._down_since, self._pause = now, self._first_pause
            logger.error(
                "store %r is not reachable: %s",
                self.driver.alias,
                " ".join(str(error).split()),
                extra={"event": "store_lost", "connection": self.driver.alias},
            )
        else:
            self._pause = min(self._pause * 2, self._longest_pause)
        self._next_try = now + self._pause

    def end_turn(self) -> None:
        """Say that the store is back, when everything since the last call went well."""
        is_back = self._works and self._down_since is not None
        self._works = self._is_busy = False
        if is_back:
            self._come_back()

    def _come_back(self) -> None:
        seconds = time.monotonic() - (self._down_since or 0.0)
        self._down_since = None
        logger.warning(
            "store %r is back after %.0f s",
            self.driver.alias,
            seconds,
            extra={"event": "store_back", "connection": self.driver.alias},
        )
