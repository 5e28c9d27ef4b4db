"""How many attempts a process may still begin, shared by its loops."""

from __future__ import annotations

from threading import Lock


class Budget:
    def __init__(self, attempts: int | None) -> None:
        """``attempts`` is None without a limit."""
        self._left = attempts
        self._lock = Lock()

    @property
    def is_spent(self) -> bool:
        return self._left == 0

    def take(self, wanted: int) -> int:
        """Set aside up to ``wanted`` attempts; return how many."""
        if self._left is None:
            return wanted
        with self._lock:
            granted = min(wanted, self._left)
            self._left -= granted
            return granted

    def give_back(self, unused: int) -> None:
        if self._left is not None:
            with self._lock:
                self._left += unused
