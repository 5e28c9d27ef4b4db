"""What is wrong with how a Redis server, or its entry in the settings, is set up: sentences, each with the cure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.core.cache import DEFAULT_CACHE_ALIAS
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from .options import RedisOptions

OLDEST = (6, 2)


def problems(client: Redis, alias: str, options: RedisOptions) -> list[str]:
    """Why no worker can serve the connection."""
    if not options.has_prefix and not settings.DEBUG:
        return [prefix_missing(alias)]
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
    cleared = [name for name in settings.CACHES if _clears(name, options.cache)]
    if cleared:
        found.append(
            (
                f"{where} lies in the database that clear() of the cache {cleared[0]!r} flushes, with all its jobs.",
                "Give the queue a database number, or a server, of its own.",
            )
        )
    if client.connection_pool.connection_kwargs.get("socket_timeout", 1) is None:
        found.append(
            (
                f"{where} is waited for without end when it falls silent.",
                f'Set SOCKET_TIMEOUT, for example 10, in the OPTIONS of CACHES["{options.cache}"].',
            )
        )
    return found


def _told(client: Redis, section: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], client.info(section))


def _clears(name: str, queue_cache: str) -> bool:
    """Whether a project that clears a cache would flush the queue: any but an alias that is there for the queue."""
    is_for_queue = name == queue_cache and name != DEFAULT_CACHE_ALIAS
    return not is_for_queue and settings.CACHES[name].get("LOCATION") == settings.CACHES[queue_cache].get("LOCATION")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _one_line(error: RedisError) -> str:
    return " ".join(str(error).split())
