"""Hearing of jobs through Redis: soon, not for ever, and across a server that falls silent."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from select import select
from threading import Event, Thread
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.drivers.redis import news as redis_news
from django_jobqueue.drivers.redis.options import RedisOptions
from django_jobqueue.jobs.records import ReserveLimit
from tests.drivers.contract import new
from tests.helpers.redis import redis_driver

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]

DEADLINE = 60.0


class Ears:
    """A waiter that remembers that it was woken."""

    def __init__(self) -> None:
        self.woken = Event()

    def wake(self) -> None:
        self.woken.set()


@pytest.fixture
def driver() -> Iterator[RedisDriver]:
    with redis_driver() as driver:
        yield driver


@pytest.fixture
def elsewhere(driver: RedisDriver) -> RedisDriver:
    """The same connection in another process, as far as this one knows."""
    return RedisDriver("default", {"CACHE": driver.options.cache, "PREFIX": driver.options.prefix})


@pytest.fixture
def ears(driver: RedisDriver) -> Iterator[Ears]:
    ears = Ears()
    driver.listen(ears)
    yield ears
    driver.unlisten(ears)


def subscribed(driver: RedisDriver) -> None:
    assert driver._listener is not None
    assert driver._listener.subscribed.wait(DEADLINE)


def test_a_push_of_another_process_wakes(driver: RedisDriver, elsewhere: RedisDriver, ears: Ears) -> None:
    subscribed(driver)
    elsewhere.push([new()])
    assert ears.woken.wait(DEADLINE)


def test_a_job_handed_back_by_another_process_wakes(driver: RedisDriver, elsewhere: RedisDriver, ears: Ears) -> None:
    elsewhere.push([new()])
    held = elsewhere.reserve("default", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=60).jobs
    subscribed(driver)
    ears.woken.clear()
    elsewhere.hand_back(held)
    assert ears.woken.wait(DEADLINE)


def test_a_push_of_this_process_wakes_without_the_server(driver: RedisDriver) -> None:
    driver.notifies = False
    ears = Ears()
    driver.listen(ears)
    assert driver._listener is None
    driver.push([new()])
    assert ears.woken.is_set()


def test_nobody_is_woken_for_a_queue_that_is_not_theirs(driver: RedisDriver, elsewhere: RedisDriver) -> None:
    mail, other = Ears(), Ears()
    driver.listen(mail, ["mail"])
    driver.listen(other, ["other"])
    subscribed(driver)
    elsewhere.push([new(queue="other")])
    assert other.woken.wait(DEADLINE)
    assert not mail.woken.is_set()
    driver.unlisten(mail)
    driver.unlisten(other)


def test_the_thread_ends_with_the_last_listener(driver: RedisDriver) -> None:
    ears = Ears()
    driver.listen(ears)
    listener = driver._listener
    assert listener is not None
    driver.unlisten(ears)
    assert driver._listener is None
    assert not listener._thread.is_alive()


class Proxy:
    """In front of Redis; told to fall silent, it forwards nothing more of what it has, and closes nothing."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[socket.socket] = set()
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def fall_silent(self) -> None:
        """Of the connections that there are; new ones work, as with the server that takes over."""
        self._silent |= {each for pair in self._pairs for each in pair}

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for each in (self._listening, *(each for pair in self._pairs for each in pair)):
            each.close()

    def _run(self) -> None:
        while not self._over.is_set():
            others = {a: b for pair in self._pairs for a, b in (pair, pair[::-1]) if a not in self._silent}
            for ready in select([self._listening, *others], [], [], 0.05)[0]:
                if ready is self._listening:
                    self._pairs.append((ready.accept()[0], socket.create_connection(self._target)))
                    continue
                data = b""
                with suppress(OSError):
                    data = ready.recv(65536)
                if data and ready not in self._silent:
                    others[ready].sendall(data)
                elif not data:
                    self._silent |= {ready, others[ready]}


def test_a_server_that_falls_silent_is_left_for_a_fresh_connection(
    settings: Any, monkeypatch: pytest.MonkeyPatch, driver: RedisDriver, elsewhere: RedisDriver
) -> None:
    """F31"""
    monkeypatch.setattr(redis_news, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(redis_news, "RECONNECT_SECONDS", 0.05)
    kwargs = driver.client.connection_pool.connection_kwargs
    with closing(Proxy(kwargs["host"], kwargs["port"])) as proxy:
        cache = {**settings.CACHES["redis"], "LOCATION": f"redis://127.0.0.1:{proxy.port}/{kwargs['db']}"}
        settings.CACHES = {**settings.CACHES, "proxied": cache}
        behind = RedisDriver("default", {"CACHE": "proxied", "PREFIX": driver.options.prefix})
        ears = Ears()
        behind.listen(ears)
        subscribed(behind)
        proxy.fall_silent()
        ends = time.monotonic() + DEADLINE
        while not ears.woken.wait(0.1):
            assert time.monotonic() < ends
            elsewhere.push([new()])
        behind.unlisten(ears)
        behind.close()


def test_an_idle_wait_on_a_server_that_answers_is_no_error(
    driver: RedisDriver, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: signs of life are asked for, and arrive, on the first connection."""
    monkeypatch.setattr(redis_news, "SILENCE_SECONDS", 0.3)
    subscribed(driver)
    pings: list[float] = []
    take = redis_news.NewsListener._take
    enough = Event()

    def count(self: Any, message: dict[str, object]) -> None:
        take(self, message)
        if message["type"] == "pong":
            pings.append(time.monotonic())
        if len(pings) == 2:
            enough.set()

    monkeypatch.setattr(redis_news.NewsListener, "_take", count)
    assert enough.wait(DEADLINE)
    assert driver._listener is not None
    assert driver._listener.subscribed.is_set()


def test_options_are_read_without_a_connection(settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "absent": {**settings.CACHES["redis"], "LOCATION": "redis://127.0.0.1:1/0"}}
    driver = RedisDriver("default", {"CACHE": "absent", "PREFIX": "shop:"})
    assert driver.options == RedisOptions(
        cache="absent", server="127.0.0.1:1/0", prefix="shop:", has_prefix=True, database=None
    )
    (problem,) = driver.problems()
    assert "not reachable" in problem
