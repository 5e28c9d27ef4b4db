"""Waiting for sockets, and a bell among them, by which another thread or a signal handler ends the wait."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress


class Bell:
    """Ringing never blocks, and takes no lock."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()  # Windows can wait for nothing else
        self._heard.setblocking(False)
        self._rung.setblocking(False)

    @property
    def descriptor(self) -> int:
        return self._heard.fileno()

    def ring(self) -> None:
        with suppress(OSError):  # full of rings, or closed
            self._rung.send(b"!")

    def silence(self) -> None:
        with suppress(OSError):
            self._heard.recv(4096)

    def close(self) -> None:
        self._heard.close()
        self._rung.close()


LONGEST = 86_400.0  # of one wait: poll() counts milliseconds in an int


def readable(descriptors: Sequence[int], seconds: float | None) -> list[int]:
    """Wait, at most so long and at most a day; return those from which something can be read, or that have ended."""
    seconds = LONGEST if seconds is None else min(seconds, LONGEST)
    if not hasattr(select, "poll"):  # Windows
        return select.select(descriptors, [], [], seconds)[0]
    watched = select.poll()
    for descriptor in descriptors:
        watched.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in watched.poll(seconds * 1000)]
