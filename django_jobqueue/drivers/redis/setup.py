"""What is wrong with how a Redis server, or its entry in the settings, is set up: sentences, each with the cure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.core.cache import DEFAULT_CACHE_ALIAS
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from ...conf import get_settings
from .options import RedisOptions
from .servers import asked, client_of, servers_of

OLDEST = (6, 2)


def setting_problems(alias: str, options: RedisOptions) -> list[str]:
    """Why no worker may serve the connection, whatever its server is like."""
    return [] if options.has_prefix or settings.DEBUG else [prefix_missing(alias)]


def problems(client: Redis, alias: str) -> list[str]:
    """Why no worker can serve the connection, as its server is."""
    try:
        server = _told(client, "server")
        replication = _told(client, "replication")
    except ResponseError as error:  # an ACL, or a service around it
        return [f"The Redis of the queue connection {alias!r} must answer INFO, and does not: {_one_line(error)}"]
    except RedisError as error:
        return [f"The Redis of the queue connection {alias!r} is not reachable: {_one_line(error)}"]
    version = str(server.get("redis_version", ""))  # of Valkey the Redis that it can stand in for
    if "cluster" in {server.get("redis_mode"), server.get("server_mode")}:  # the second is Valkey's word
        return [
            f"The Redis of the queue connection {alias!r} is a Redis Cluster, for which django-redis has no client; "
            "use a single server, or Sentinel."
        ]
    if _numbers(version) < OLDEST:
        return [f"The Redis of the queue connection {alias!r} is version {version}; use 6.2 or newer, or Valkey."]
    if replication.get("role") == "slave":
        return [f"The Redis of the queue connection {alias!r} is a replica, which takes no jobs; name its master."]
    return []


def prefix_missing(alias: str) -> str:
    return (
        f"The queue connection {alias!r} has no PREFIX: another project on the same Redis would run its jobs. Give it "
        'one of its own, such as "PREFIX": "shop:".'
    )


def risks(client: Redis, alias: str, options: RedisOptions) -> list[tuple[str, str]]:
    """How jobs may be lost as the server is set up, as far as it says, and the cure of each; asks the server.

    By INFO, which the documented rights include: CONFIG is kept from users with few rights, and by services.
    """
    found = []
    where = f"The Redis of the queue connection {alias!r}"
    policy = _told(client, "memory").get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            (
                f"{where} has maxmemory-policy {policy!r}: short of memory it deletes waiting jobs without a word.",
                "Set maxmemory-policy to noeviction, on a server of the queue's own.",
            )
        )
    if _told(client, "persistence").get("aof_enabled") == 0:
        found.append(
            (
                f"{where} keeps no append-only file: when it ends, jobs are lost since its last snapshot, or all.",
                "Set appendonly to yes.",
            )
        )
    queues = _of_queues(options.cache)
    cleared = [name for name in settings.CACHES if name not in queues and _flushes(name, client, options)]
    if cleared:
        found.append(
            (
                f"{where} lies in the database that clear() of the cache {cleared[0]!r} flushes, with all its jobs.",
                "Give the queue a database number, or a server, of its own.",
            )
        )
    if _waits_without_end(client):
        found.append(
            (
                f"{where} is waited for without end when it falls silent.",
                f'Set SOCKET_TIMEOUT, for example 10, in the OPTIONS of CACHES["{options.cache}"].',
            )
        )
    return found


def _waits_without_end(client: Redis) -> bool:
    """As a connection has it that was not opened: without SOCKET_TIMEOUT redis-py decides, before its version 8 so."""
    pool = client.connection_pool
    return getattr(pool.connection_class(**pool.connection_kwargs), "socket_timeout", 0) is None


def _told(client: Redis, section: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], client.info(section))


def _of_queues(own: str) -> set[str]:
    """The caches that are there for queues only, so that nobody clears them."""
    named = {entry.get("CACHE", own) for entry in get_settings().connections.values()}
    return {own, *named} - {DEFAULT_CACHE_ALIAS}


def _flushes(cache: str, client: Redis, options: RedisOptions) -> bool:
    """Whether to clear a cache is to flush the queue's database, whatever name the server has in its settings."""
    servers = servers_of(cache)
    if options.server in servers:
        return True
    if servers[0].rpartition("/")[2] != options.server.rpartition("/")[2]:  # another number
        return False
    try:
        other = client_of(cache)
        return other is not None and asked(other) == asked(client) is not None
    except Exception:  # out of reach, or refused, or no cache at all: then its settings are all that is known
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _one_line(error: RedisError) -> str:
    return " ".join(str(error).split())
