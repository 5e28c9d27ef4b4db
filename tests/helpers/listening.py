"""Every signal that was sent, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal


class Heard:
    """``names()`` says what was sent, ``all("job_failed")`` with which arguments."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self._receivers: list[tuple[Signal, Callable[..., None]]] = []

    def listen(self, name: str, signal: Signal) -> None:
        def receive(**sent: Any) -> None:
            self.sent.append((name, {key: value for key, value in sent.items() if key != "signal"}))

        signal.connect(receive, weak=False)
        self._receivers.append((signal, receive))

    def stop(self) -> None:
        for signal, receive in self._receivers:
            signal.disconnect(receive)

    def names(self, prefix: str = "job_") -> list[str]:
        return [name for name, _ in self.sent if name.startswith(prefix)]

    def all(self, name: str) -> list[dict[str, Any]]:
        return [sent for heard, sent in self.sent if heard == name]

    def one(self, name: str) -> dict[str, Any]:
        (sent,) = self.all(name)
        return sent

    def forget(self) -> None:
        self.sent.clear()
