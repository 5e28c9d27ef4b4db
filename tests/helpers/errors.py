"""What a handler may raise, the worst of it; and something that tells when it is no longer kept alive."""

from __future__ import annotations

import asyncio


class Unusual(BaseException):
    """No Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    Unusual(),
    Unprintable(),
    Leaving(),
]


class Load:
    """Something that a weak reference can watch."""
