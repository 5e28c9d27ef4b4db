"""Which server and database number the alias of a cache means: by its settings, in one spelling, or as asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.redis import RedisCache as DjangosCache
from django_redis.cache import RedisCache
from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

THIS_HOST = "127.0.0.1"
_NAMES_OF_THIS_HOST = {"", "localhost", "::1"}
DEFAULT_PORT = 6379
# Asking must not keep a worker from its start, whatever is the matter with the server of another cache.
PATIENCE = 2.0


def servers_of(cache: str) -> list[str]:
    """``host:port/number`` of each server of a cache, the first of which is written to; its text where it is no URL."""
    options = settings.CACHES[cache].get("OPTIONS", {})
    return [_server(url, options) for url in _urls(cache)]


def decodes(cache: str) -> bool:
    """Whether a cache of django-redis is told to return text; of a URL redis-py takes every word for yes."""
    given = settings.CACHES[cache].get("OPTIONS", {}).get("CONNECTION_POOL_KWARGS", {})
    return any({**given, **(_parsed(url) or {})}.get("decode_responses") for url in _urls(cache))


def _urls(cache: str) -> list[str]:
    location = settings.CACHES[cache].get("LOCATION") or ""
    return re.split("[;,]", location) if isinstance(location, str) else [str(each) for each in location]


def _parsed(url: str) -> Mapping[str, Any] | None:
    """None where it is no URL."""
    try:
        found: Mapping[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return found


def _server(url: str, options: Mapping[str, Any]) -> str:
    parsed = _parsed(url)
    if parsed is None:
        return url
    # As redis-py has it, the URL comes first; Django's own backend gives it all OPTIONS, django-redis these only.
    found = {**options, **options.get("CONNECTION_POOL_KWARGS", {}), **parsed}
    number = found.get("db") or 0
    if "path" in found:
        return f"{found['path']}/{number}"
    host = str(found.get("host") or "").lower()
    if "SENTINELS" in options:  # which know the host by a name
        return f"{host} of {sorted(map(str, options['SENTINELS']))}/{number}"
    return f"{THIS_HOST if host in _NAMES_OF_THIS_HOST else host}:{found.get('port') or DEFAULT_PORT}/{number}"


def client_of(cache: str) -> Redis | None:
    """That by which a cache is written to; None where it is no Redis, or not one whose client we know."""
    backend = caches[cache]
    if isinstance(backend, RedisCache):
        client: Redis = backend.client.get_client(write=True)
        return client
    if isinstance(backend, DjangosCache):
        return backend._cache.get_client(write=True)
    return None


def asked(client: Redis) -> str | None:
    """What the server calls itself, and the number; None where it does not tell. Raises RedisError."""
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):  # no other finds its server
        name = _run_id(client)
    else:
        times = {"socket_connect_timeout": PATIENCE, "socket_timeout": PATIENCE, "retry": Retry(NoBackoff(), 0)}
        given = {**pool.connection_kwargs, **times}
        hasty = ConnectionPool(connection_class=pool.connection_class, **given)
        try:
            name = _run_id(Redis(connection_pool=hasty))
        finally:
            hasty.disconnect()  # close() came with redis-py 5
    return f"{name}/{pool.connection_kwargs.get('db') or 0}" if name else None


def _run_id(client: Redis) -> str:
    return str(cast(Mapping[str, Any], client.info("server")).get("run_id") or "")
