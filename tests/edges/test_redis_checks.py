"""What is said of a Redis connection in the settings, and of the server behind it, before it loses a job."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import caches
from django.core.checks import CheckMessage, Tags, run_checks
from django.core.management import CommandError, call_command

pytest.importorskip("django_redis", reason="django-redis is not installed")

from redis.connection import Connection, ConnectionPool
from redis.exceptions import NoPermissionError

from django_jobqueue import embed
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.drivers.redis import setup
from django_jobqueue.drivers.redis.servers import servers_of
from django_jobqueue.exceptions import InvalidConnection
from django_jobqueue.models import FailedJob
from lab.servers import Redis, free_port
from tests.drivers.contract import new
from tests.helpers.aliases import database_alias
from tests.helpers.proxies import proxy
from tests.helpers.redis import entry, wipe
from tests.helpers.servers import private_redis, running
from tests.helpers.waiting import wait_until


def found(databases: list[str] | None = None) -> dict[str, CheckMessage]:
    tags = ["jobqueue"] if databases is None else [Tags.database]
    messages = run_checks(tags=tags, databases=databases)
    return {
        str(message.id).removeprefix("django_jobqueue."): message
        for message in messages
        if str(message.id).startswith("django_jobqueue") and not str(message.id).endswith("W002")
    }


def configure(settings: Any, **entries: dict[str, Any]) -> None:
    settings.JOBQUEUE = {"CONNECTIONS": {"default": {"DRIVER": "database"}, **entries}}


def cache(settings: Any, name: str, **changes: Any) -> None:
    settings.CACHES = {**settings.CACHES, name: {**settings.CACHES["redis"], **changes}}


# The settings, without a server


def test_a_connection_with_a_prefix_is_in_order(settings: Any) -> None:
    configure(settings, fast=entry())
    assert found() == {}


def test_a_missing_prefix_is_an_error_in_production_and_a_warning_before(settings: Any) -> None:
    """F92"""
    configure(settings, fast={"DRIVER": "redis", "CACHE": "redis"})
    settings.DEBUG = True
    assert set(found()) == {"W009"}
    settings.DEBUG = False
    assert set(found()) == {"E005"}
    assert "'fast'" in found()["E005"].msg


def test_without_a_prefix_no_worker_starts_in_production(settings: Any) -> None:
    """F92"""
    configure(settings, fast={"DRIVER": "redis", "CACHE": "redis"})
    settings.DEBUG = False
    with pytest.raises(CommandError, match="PREFIX"):
        call_command("queue_work", connection=["fast"], stop_when_empty=True)


def test_without_a_prefix_no_embedded_worker_starts_in_production(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """F92: and the web server is not disturbed."""
    cache(settings, "absent", LOCATION="redis://127.0.0.1:1/0")
    configure(settings, fast={"DRIVER": "redis", "CACHE": "absent"})
    settings.DEBUG = False
    workers = embed.start(1)
    wait_until(lambda: not workers.is_running, "they have ended")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "'fast' has no PREFIX" in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("jobqueue-worker")]


def test_two_connections_with_one_prefix_are_an_error(settings: Any) -> None:
    """F92"""
    configure(settings, fast=entry(PREFIX="shop:"), faster=entry(PREFIX="shop:"), other=entry(PREFIX="blog:"))
    assert set(found()) == {"E006"}
    assert all(name in found()["E006"].msg for name in ("'fast'", "'faster'", "'shop:'"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"CACHE": "absent"}, "which CACHES lacks"),
        ({"CACHE": "default"}, "django_redis.cache.RedisCache"),
        ({"CACHE": "broken"}, "broken"),
        ({"CACHE": "sharded"}, "DefaultClient"),
        ({"CACHE": "decoding"}, "decode_responses"),
        ({"CACHE": "decoding by URL"}, "decode_responses"),
        ({"PREFIX": "{shop}"}, "braces"),
        ({"PREFIX": "shop\n"}, "printed"),
        ({"PREFIX": 7}, "short string"),
        ({"PREFIX": "x" * 101}, "short string"),
        ({"DATABASE": "absent"}, "DATABASES lacks"),
        ({"HOST": "127.0.0.1"}, "CACHE, DATABASE, PREFIX"),
    ],
)
def test_an_entry_that_cannot_work_is_an_error_with_the_cure(settings: Any, changes: dict[str, Any], said: str) -> None:
    cache(settings, "broken", BACKEND="absent.Backend")
    cache(settings, "sharded", OPTIONS={"CLIENT_CLASS": "django_redis.client.ShardClient"})
    cache(settings, "decoding", OPTIONS={"CONNECTION_POOL_KWARGS": {"decode_responses": True}})
    cache(settings, "decoding by URL", LOCATION="redis://127.0.0.1:6379/0?decode_responses=false")
    configure(settings, fast=entry(**changes))
    assert set(found()) == {"E002"}
    assert said in found()["E002"].msg
    assert "'fast'" in found()["E002"].msg


class LettersElsewhere:
    def db_for_write(self, model: type, **hints: Any) -> str | None:
        return "queue" if model is FailedJob else None


def test_dead_letters_lie_where_the_routers_say_unless_the_entry_does(settings: Any) -> None:
    given = entry()
    del given["DATABASE"]
    with database_alias("queue"):
        settings.DATABASE_ROUTERS = [LettersElsewhere()]
        configure(settings, fast=given, told=entry(DATABASE="default"))
        assert [connections[name].database for name in ("fast", "told")] == ["queue", "default"]


def test_without_django_redis_the_error_names_what_to_install(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(settings, fast=entry())
    for name in [name for name in sys.modules if name.startswith("django_jobqueue.drivers.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "django_redis", None)
    with pytest.raises(InvalidConnection, match=r'pip install "django-jobqueue\[redis\]"'):
        connections["fast"]


# The server


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    """One whose settings may be changed: it keeps its jobs until a test says otherwise."""
    with running(private_redis()) as server:
        yield server


@pytest.fixture
def configured(server: Redis) -> Iterator[Callable[[str, str], None]]:
    def change(name: str, value: str) -> None:
        server.execute(f"CONFIG SET {name} {value}")

    yield change
    change("maxmemory-policy", "noeviction")
    change("appendonly", "yes")


@pytest.fixture
def fast(settings: Any, server: Redis) -> Iterator[Driver]:
    cache(settings, "private", **server.settings())
    configure(settings, fast=entry(CACHE="private"))
    yield connections["fast"]
    wipe(connections["fast"])
    connections["fast"].close()


@pytest.mark.django_db(transaction=True)
def test_a_server_that_keeps_its_jobs_has_no_warning(fast: Any) -> None:
    assert "W010" not in found(["default"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("maxmemory-policy", "allkeys-lru", "allkeys-lru"), ("appendonly", "no", "append-only")],
)
def test_a_server_that_may_lose_jobs_is_a_warning(
    fast: Any, configured: Callable[[str, str], None], name: str, value: str, said: str
) -> None:
    """F92"""
    configured(name, value)
    assert said in found(["default"])["W010"].msg


@pytest.mark.django_db(transaction=True)
def test_a_cache_whose_clear_would_flush_the_queue_is_a_warning(settings: Any, fast: Any, server: Redis) -> None:
    """F92"""
    cache(settings, "sessions", **server.settings())
    warning = found(["default"])["W010"]
    assert "clear() of the cache 'sessions'" in warning.msg
    cache(settings, "sessions", LOCATION="redis://127.0.0.1:1/15")
    assert "W010" not in found(["default"])


@pytest.mark.django_db(transaction=True)
def test_a_queue_in_the_default_cache_is_a_warning_which_is_true(settings: Any, server: Redis) -> None:
    """F92: code that caches names no alias, so that this one is cleared, whoever has queues there."""
    number, others = (server.settings(LOCATION=f"redis://127.0.0.1:{server.port}/{number}") for number in (4, 5))
    cache(settings, "default", **number)
    cache(settings, "queue", **others)
    configure(settings, fast={"DRIVER": "redis", "PREFIX": "shop:"}, safe=entry(CACHE="queue"))
    assert connections["fast"].options.cache == "default"
    warnings = [message.msg for message in run_checks(tags=[Tags.database], databases=["default"])]
    assert [text for text in warnings if "clear() of the cache 'default'" in text and "'fast'" in text]
    assert not [text for text in warnings if "'safe'" in text]
    lost, kept = new(), new()
    connections["fast"].push([lost])
    connections["safe"].push([kept])
    caches["default"].clear()
    assert connections["fast"].get(lost.id) is None
    assert connections["safe"].get(kept.id) is not None
    for name in ("fast", "safe"):
        wipe(connections[name])
        connections[name].close()


DJANGOS = "django.core.cache.backends.redis.RedisCache"
SPELLINGS = [
    {"LOCATION": "redis://127.0.0.1:1/8"},
    {"LOCATION": "redis://localhost:1/8"},
    {"LOCATION": "redis://LOCALHOST:1/8"},
    {"LOCATION": "redis://[::1]:1/8"},
    {"LOCATION": "redis://127.0.0.1:1?db=8"},
    {"LOCATION": "redis://127.0.0.1:1/0?db=8"},
    {"LOCATION": "redis://:@127.0.0.1:1/8"},
    {"LOCATION": "redis://user:secret@127.0.0.1:1/8"},
    {"LOCATION": "rediss://127.0.0.1:1/8"},
    {"LOCATION": ["redis://127.0.0.1:1/8"]},
    {"LOCATION": "redis://127.0.0.1:1/8,redis://replica/8"},
    {"LOCATION": "redis://127.0.0.1:1", "OPTIONS": {"CONNECTION_POOL_KWARGS": {"db": 8}}},
    {"LOCATION": "redis://127.0.0.1:1/8", "BACKEND": DJANGOS},
    {"LOCATION": "redis://127.0.0.1:1", "BACKEND": DJANGOS, "OPTIONS": {"db": "8"}},
]


@pytest.mark.parametrize("entry", SPELLINGS, ids=str)
def test_a_server_is_recognised_however_it_is_written(settings: Any, entry: dict[str, Any]) -> None:
    cache(settings, "other", **{"OPTIONS": {}, **entry})
    assert servers_of("other")[0] == "127.0.0.1:1/8"


@pytest.mark.parametrize(
    ("location", "server"),
    [
        ("redis://127.0.0.1", "127.0.0.1:6379/0"),
        ("redis://", "127.0.0.1:6379/0"),
        ("redis://host/3", "host:6379/3"),
        ("unix:///run/redis.sock?db=3", "/run/redis.sock/3"),
        ("unix:///run/redis.sock", "/run/redis.sock/0"),
        ("valkey://host", "valkey://host"),
        ("", ""),
    ],
)
def test_what_a_location_leaves_out_is_what_the_client_takes(settings: Any, location: str, server: str) -> None:
    cache(settings, "other", LOCATION=location)
    assert servers_of("other") == [server]


def test_masters_of_one_name_are_one_where_their_sentinels_are_the_same(settings: Any) -> None:
    given = {"LOCATION": "redis://master/1", "OPTIONS": {"SENTINELS": [("a", 26379), ("b", 26379)]}}
    cache(settings, "one", **given)
    cache(settings, "same", **{**given, "OPTIONS": {"SENTINELS": [("b", 26379), ("a", 26379)]}})
    cache(settings, "other", **{**given, "OPTIONS": {"SENTINELS": [("c", 26379)]}})
    assert servers_of("one") == servers_of("same") != servers_of("other")


def test_two_connections_to_one_server_in_two_spellings_are_an_error(settings: Any) -> None:
    """F92"""
    cache(settings, "one", LOCATION="redis://127.0.0.1:1/8")
    cache(settings, "two", LOCATION="redis://localhost:1?db=8")
    cache(settings, "three", LOCATION="redis://localhost:1/7")
    configure(settings, **{name: entry(CACHE=name, PREFIX="shop:") for name in ("one", "two", "three")})
    assert set(found()) == {"E006"}
    assert all(name in found()["E006"].msg for name in ("'one'", "'two'"))


@pytest.fixture
def elsewhere(server: Redis) -> Iterator[str]:
    """The location of the server under a name that no setting can know to be the same."""
    with proxy("127.0.0.1", server.port, b"never said") as behind:
        yield f"redis://127.0.0.1:{behind.port}/0"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("backend", [DJANGOS, "django_redis.cache.RedisCache"])
def test_a_cache_that_knows_the_server_by_another_name_is_a_warning(
    settings: Any, fast: Any, elsewhere: str, backend: str
) -> None:
    """F92"""
    cache(settings, "sessions", BACKEND=backend, LOCATION=elsewhere, OPTIONS={})
    assert "clear() of the cache 'sessions'" in found(["default"])["W010"].msg
    cache(settings, "sessions", BACKEND=backend, LOCATION=f"{elsewhere}7", OPTIONS={})
    assert "W010" not in found(["default"])


@pytest.mark.django_db(transaction=True)
def test_the_server_is_asked_by_any_redis_py(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its version 5 a pool has no close()."""
    monkeypatch.setattr(ConnectionPool, "close", None, raising=False)
    name = fast.store_id()
    assert name is not None
    assert name == fast.store_id()


@pytest.mark.django_db(transaction=True)
def test_two_connections_to_one_server_by_two_names_are_an_error(settings: Any, fast: Any, elsewhere: str) -> None:
    """F92"""
    cache(settings, "elsewhere", LOCATION=elsewhere)
    configure(settings, fast=entry(CACHE="private", PREFIX="shop:"), faster=entry(PREFIX="shop:", CACHE="elsewhere"))
    assert found() == {}
    assert all(name in found(["default"])["E006"].msg for name in ("'fast'", "'faster'"))
    configure(settings, fast=entry(CACHE="private", PREFIX="shop:"), faster=entry(PREFIX="blog:", CACHE="elsewhere"))
    assert "E006" not in found(["default"])
    configure(settings, fast=entry(CACHE="private", PREFIX="shop:"), faster=entry(PREFIX="shop:", CACHE="elsewhere"))
    with pytest.raises(CommandError, match="each would run the other's jobs"):
        call_command("queue_work", connection=["fast"], stop_when_empty=True, skip_checks=False)


@pytest.mark.django_db(transaction=True)
def test_an_alias_that_another_queue_connection_uses_is_no_warning(settings: Any, fast: Any, server: Redis) -> None:
    cache(settings, "second", **server.settings())
    configure(settings, fast=entry(CACHE="private"), faster=entry(CACHE="second"))
    assert "W010" not in found(["default"])


@pytest.fixture
def as_user(settings: Any, server: Redis, fast: Any) -> Callable[[str], Any]:
    """The same connection for a user with some rights."""

    def log_in(rights: str) -> Any:
        server.execute(f"ACL SETUSER shop reset on >secret ~* &* {rights}")
        cache(settings, "private", **server.settings(LOCATION=f"redis://shop:secret@127.0.0.1:{server.port}/0"))
        return connections["fast"]

    return log_in


@pytest.mark.django_db(transaction=True)
def test_a_user_who_may_not_ask_for_settings_is_warned_all_the_same(
    as_user: Callable[[str], Any], configured: Callable[[str, str], None]
) -> None:
    """As on the servers of services, which refuse CONFIG."""
    configured("maxmemory-policy", "volatile-lru")
    driver = as_user("+@all -config")
    with pytest.raises(NoPermissionError):
        driver.client.config_get("maxmemory-policy")
    assert driver.problems() == []
    assert "volatile-lru" in found(["default"])["W010"].msg


@pytest.mark.django_db(transaction=True)
def test_a_server_that_tells_nothing_of_itself_is_no_crash_and_stops_workers(as_user: Callable[[str], Any]) -> None:
    as_user("+@all -info")
    assert "W010" not in found(["default"])
    with pytest.raises(CommandError, match=r"must answer INFO, and does not: .*permission"):
        call_command("queue_work", connection=["fast"], stop_when_empty=True)


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_too_old_is_refused(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """F92"""
    monkeypatch.setattr(setup, "OLDEST", (1000, 0))
    (problem,) = fast.problems()
    assert "use 6.2 or newer, or Valkey" in problem


@pytest.mark.django_db(transaction=True)
def test_a_node_of_a_cluster_is_refused(settings: Any) -> None:
    """F92"""
    with running(private_redis(cluster_enabled="yes", cluster_port=str(free_port()))) as node:
        cache(settings, "node", **node.settings())
        configure(settings, fast=entry(CACHE="node"))
        (problem,) = connections["fast"].problems()
        assert "is a Redis Cluster" in problem
        connections["fast"].close()


@pytest.mark.django_db(transaction=True)
def test_a_replica_is_refused(settings: Any, server: Redis) -> None:
    """It takes no writes; and what it has is the master's."""
    with running(private_redis()) as replica:
        replica.execute(f"REPLICAOF 127.0.0.1 {server.port}")
        cache(settings, "replica", **replica.settings())
        configure(settings, fast=entry(CACHE="replica"))
        with pytest.raises(CommandError, match="is a replica, which takes no jobs; name its master"):
            call_command("queue_work", connection=["fast"], stop_when_empty=True)
        connections["fast"].close()


@pytest.mark.django_db
def test_a_server_out_of_reach_stops_no_check(settings: Any) -> None:
    cache(settings, "absent", LOCATION="redis://127.0.0.1:1/0")
    configure(settings, fast=entry(CACHE="absent"))
    assert "W010" not in found(["default"])


class Endless(Connection):
    """As those of redis-py before 8, which wait without an end unless they are told otherwise."""

    def __init__(self, *args: Any, socket_timeout: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, socket_timeout=socket_timeout, **kwargs)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("options", "is_endless"),
    [
        ({"CONNECTION_POOL_KWARGS": {"socket_timeout": None}}, True),
        ({"CONNECTION_POOL_KWARGS": {"connection_class": Endless}}, True),
        ({"CONNECTION_POOL_KWARGS": {"connection_class": Endless}, "SOCKET_TIMEOUT": 10}, False),
    ],
    ids=["told so", "not told", "told otherwise"],
)
def test_a_connection_without_an_end_of_waiting_is_a_warning(
    settings: Any, fast: Any, server: Redis, options: dict[str, Any], is_endless: bool
) -> None:
    """F31"""
    # django-redis keeps one pool for each address, with the options that it had first.
    address = f"redis://127.0.0.1:{server.port}/1?client_name=test-{uuid4().hex}"
    cache(settings, "private", **server.settings(LOCATION=address, OPTIONS=options))
    cures = [cure for _, cure in connections["fast"].risks()]
    assert len(cures) == is_endless
    assert all("SOCKET_TIMEOUT" in cure for cure in cures)


@pytest.mark.django_db(transaction=True)
def test_a_worker_says_at_its_start_what_may_lose_jobs(
    fast: Any, configured: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """F92"""
    configured("maxmemory-policy", "volatile-lru")
    stderr = StringIO()
    call_command(
        "queue_work", connection=["fast"], stop_when_empty=True, skip_checks=False, stdout=StringIO(), stderr=stderr
    )
    assert "volatile-lru" in stderr.getvalue() + capsys.readouterr().err
