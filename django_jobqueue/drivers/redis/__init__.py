"""The driver for Redis, by django-redis: `driver` has the contract, `lua/` the steps, all else is apart from both."""

from __future__ import annotations

from .driver import RedisDriver

__all__ = ["RedisDriver"]
