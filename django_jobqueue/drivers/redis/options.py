"""The entry of CONNECTIONS for Redis, checked without connecting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.cache import InvalidCacheBackendError, caches
from django_redis.cache import RedisCache
from django_redis.client import ShardClient

from ...exceptions import InvalidConnection
from .servers import decodes, servers_of

KEYS = ("CACHE", "DATABASE", "PREFIX")
DEFAULT_CACHE = "default"
# Where none is given, which is for development only.
DEFAULT_PREFIX = "jobqueue:"
LONGEST_PREFIX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    cache: str
    server: str
    prefix: str
    has_prefix: bool
    database: str | None

    @classmethod
    def read(cls, alias: str, options: Mapping[str, Any]) -> RedisOptions:
        """Raises InvalidConnection with the cure."""
        unknown = sorted(set(options) - set(KEYS))
        if unknown:
            raise InvalidConnection(
                f"The queue connection {alias!r} has the key {unknown[0]!r}; the redis driver takes {', '.join(KEYS)}."
            )
        cache = options.get("CACHE", DEFAULT_CACHE)
        _check_cache(alias, cache)
        prefix = options.get("PREFIX") or ""
        _check_prefix(alias, prefix)
        return cls(
            cache=cache,
            server=servers_of(cache)[0],
            prefix=prefix or DEFAULT_PREFIX,
            has_prefix=bool(prefix),
            database=options.get("DATABASE"),
        )


def _check_cache(alias: str, name: object) -> None:
    if not isinstance(name, str) or name not in settings.CACHES:
        raise InvalidConnection(
            f"The queue connection {alias!r} names the cache {name!r}, which CACHES lacks; it has "
            f"{', '.join(map(repr, settings.CACHES))}."
        )
    try:
        cache = caches[name]
    except InvalidCacheBackendError as error:
        raise InvalidConnection(f"The cache {name!r} of the queue connection {alias!r}: {error}") from error
    if not isinstance(cache, RedisCache):
        raise InvalidConnection(
            f"The queue connection {alias!r} names the cache {name!r}, which is no django-redis cache but "
            f"{settings.CACHES[name].get('BACKEND')!r}; give it the backend "
            '"django_redis.cache.RedisCache", or name another alias.'
        )
    if isinstance(cache.client, ShardClient):
        raise InvalidConnection(
            f"The cache {name!r} of the queue connection {alias!r} is spread over several servers by ShardClient, and "
            "a queue needs one; name an alias with the DefaultClient."
        )
    if decodes(name):
        raise InvalidConnection(
            f"The cache {name!r} of the queue connection {alias!r} has decode_responses, and what lies in Redis may "
            "be no text; remove it, or name another alias."
        )


def _check_prefix(alias: str, prefix: object) -> None:
    if not isinstance(prefix, str) or len(prefix) > LONGEST_PREFIX:
        raise InvalidConnection(
            f'The PREFIX {prefix!r} of the queue connection {alias!r} must be a short string such as "shop:".'
        )
    if not prefix.isprintable() or {"{", "}"} & set(prefix):
        raise InvalidConnection(
            f"The PREFIX {prefix!r} of the queue connection {alias!r} has braces, which mark a hash slot, or what "
            'cannot be printed; use one such as "shop:".'
        )
