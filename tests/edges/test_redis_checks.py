"""What is said of a Redis connection in the settings, and of the server behind it, before it loses a job."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks
from django.core.management import CommandError, call_command

pytest.importorskip("django_redis", reason="django-redis is not installed")

import redis
from redis.exceptions import ResponseError

from django_jobqueue import embed
from django_jobqueue.drivers import Driver, connections
from django_jobqueue.drivers.redis.servers import servers_of
from django_jobqueue.exceptions import InvalidConnection
from tests.helpers.proxies import proxy
from tests.helpers.redis import entry, wipe
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
    configure(settings, fast=entry(**changes))
    assert set(found()) == {"E002"}
    assert said in found()["E002"].msg
    assert "'fast'" in found()["E002"].msg


def test_without_django_redis_the_error_names_what_to_install(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(settings, fast=entry())
    for name in [name for name in sys.modules if name.startswith("django_jobqueue.drivers.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "django_redis", None)
    with pytest.raises(InvalidConnection, match=r'pip install "django-jobqueue\[redis\]"'):
        connections["fast"]


# The server


@pytest.fixture
def fast(settings: Any) -> Iterator[Driver]:
    configure(settings, fast=entry())
    yield connections["fast"]
    wipe(connections["fast"])


def answering(driver: Any, monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    """A server that has these settings; the tests' own is not to be changed."""
    monkeypatch.setattr(driver.client, "config_get", lambda name: {name: given.get(name.replace("-", "_"), "")})


GOOD = {"maxmemory_policy": "noeviction", "appendonly": "yes"}


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_server_that_keeps_its_jobs_has_no_warning(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(fast, monkeypatch, **GOOD)
    assert "W010" not in found(["default"])


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("changes", "said"),
    [({"maxmemory_policy": "allkeys-lru"}, "allkeys-lru"), ({"appendonly": "no"}, "append-only")],
)
def test_a_server_that_may_lose_jobs_is_a_warning(
    fast: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], said: str
) -> None:
    """F92"""
    answering(fast, monkeypatch, **{**GOOD, **changes})
    assert said in found(["default"])["W010"].msg


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_cache_whose_clear_would_flush_the_queue_is_a_warning(
    settings: Any, fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F92"""
    cache(settings, "sessions")
    answering(connections["fast"], monkeypatch, **GOOD)
    warning = found(["default"])["W010"]
    assert "clear() of the cache 'sessions'" in warning.msg
    cache(settings, "sessions", LOCATION="redis://127.0.0.1:1/15")
    answering(connections["fast"], monkeypatch, **GOOD)
    assert "W010" not in found(["default"])


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
def elsewhere(settings: Any) -> Iterator[str]:
    """The location of the tests' own server under a name that no setting can know to be the same."""
    where = redis.connection.parse_url(settings.CACHES["redis"]["LOCATION"])
    with proxy(where["host"], where["port"], b"never said") as behind:
        yield f"redis://127.0.0.1:{behind.port}/{where['db']}"


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("backend", [DJANGOS, "django_redis.cache.RedisCache"])
def test_a_cache_that_knows_the_server_by_another_name_is_a_warning(
    settings: Any, fast: Any, monkeypatch: pytest.MonkeyPatch, elsewhere: str, backend: str
) -> None:
    """F92"""
    cache(settings, "sessions", BACKEND=backend, LOCATION=elsewhere, OPTIONS={})
    answering(connections["fast"], monkeypatch, **GOOD)
    assert "clear() of the cache 'sessions'" in found(["default"])["W010"].msg
    cache(settings, "sessions", BACKEND=backend, LOCATION=f"{elsewhere}7", OPTIONS={})
    answering(connections["fast"], monkeypatch, **GOOD)
    assert "W010" not in found(["default"])


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_two_connections_to_one_server_by_two_names_are_an_error(settings: Any, elsewhere: str) -> None:
    """F92"""
    cache(settings, "elsewhere", LOCATION=elsewhere)
    configure(settings, fast=entry(PREFIX="shop:"), faster=entry(PREFIX="shop:", CACHE="elsewhere"))
    assert found() == {}
    assert all(name in found(["default"])["E006"].msg for name in ("'fast'", "'faster'"))
    configure(settings, fast=entry(PREFIX="shop:"), faster=entry(PREFIX="blog:", CACHE="elsewhere"))
    assert "E006" not in found(["default"])
    configure(settings, fast=entry(PREFIX="shop:"), faster=entry(PREFIX="shop:", CACHE="elsewhere"))
    with pytest.raises(CommandError, match="each would run the other's jobs"):
        call_command("queue_work", connection=["fast"], stop_when_empty=True, skip_checks=False)


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_an_alias_that_another_queue_connection_uses_is_no_warning(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(settings, "second")
    configure(settings, fast=entry(), faster=entry(CACHE="second"))
    for alias in ("fast", "faster"):
        answering(connections[alias], monkeypatch, **GOOD)
    assert "W010" not in found(["default"])


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_server_that_does_not_tell_its_settings_is_no_error(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> Any:
        raise ResponseError("unknown command 'CONFIG'")

    monkeypatch.setattr(fast.client, "config_get", refused)
    assert "W010" not in found(["default"])


@pytest.mark.django_db
def test_a_server_out_of_reach_stops_no_check(settings: Any) -> None:
    cache(settings, "absent", LOCATION="redis://127.0.0.1:1/0")
    configure(settings, fast=entry(CACHE="absent"))
    assert "W010" not in found(["default"])


def test_a_connection_without_an_end_of_waiting_is_a_warning(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """F31"""
    endless = {"CONNECTION_POOL_KWARGS": {"socket_timeout": None}}
    cache(settings, "endless", LOCATION="redis://127.0.0.1:1/1", OPTIONS=endless)
    configure(settings, fast=entry(CACHE="endless"))
    driver: Any = connections["fast"]
    answering(driver, monkeypatch, **GOOD)
    (risk,) = driver.risks()
    assert "SOCKET_TIMEOUT" in risk[1]


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
def test_a_worker_says_at_its_start_what_may_lose_jobs(
    fast: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F92"""
    answering(fast, monkeypatch, **{**GOOD, "maxmemory_policy": "volatile-lru"})
    stderr = StringIO()
    call_command(
        "queue_work", connection=["fast"], stop_when_empty=True, skip_checks=False, stdout=StringIO(), stderr=stderr
    )
    assert "volatile-lru" in stderr.getvalue() + capsys.readouterr().err
