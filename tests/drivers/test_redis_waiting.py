"""Hearing of jobs through Redis: soon, not for ever, and across a server that falls silent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from select import select
from threading import Event, Thread
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")

from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.drivers.redis import news as redis_news
from django_jobqueue.drivers.redis.news import NewsEar
from django_jobqueue.drivers.redis.options import RedisOptions
from django_jobqueue.jobs.records import ReserveLimit
from django_jobqueue.running.stopping import Stopping, Waiter
from django_jobqueue.running.watching import Bell, readable
from tests.drivers.contract import new
from tests.helpers.redis import redis_driver
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.django_db(transaction=True)]

DEADLINE = 60.0


def heard(driver: RedisDriver, waiter: Waiter, seconds: float = DEADLINE) -> bool:
    """Whether the waiter was woken meanwhile."""
    assert driver.ear is not None
    return waiter.pause(seconds, [driver.ear])


@pytest.fixture
def driver() -> Iterator[RedisDriver]:
    with redis_driver() as driver:
        yield driver


@pytest.fixture
def elsewhere(driver: RedisDriver) -> RedisDriver:
    """The same connection in another process, as far as this one knows."""
    return RedisDriver("default", {"CACHE": driver.options.cache, "PREFIX": driver.options.prefix})


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    stopping = Stopping()
    yield stopping
    for waiter in stopping._waiters:
        stopping.dismiss(waiter)


@pytest.fixture
def waiter(driver: RedisDriver, stopping: Stopping) -> Iterator[Waiter]:
    """Who listens to it."""
    waiter = stopping.waiter()
    driver.listen(waiter)
    yield waiter
    driver.unlisten(waiter)


def subscriptions(driver: RedisDriver) -> int:
    ((_, count),) = driver.client.pubsub_numsub(driver.keys.channel)
    return int(count)


def subscribed(driver: RedisDriver) -> None:
    assert driver.ear is not None
    if driver.ear.begin() is not None:
        driver.ear.end()
    wait_until(lambda: subscriptions(driver) == 1, "it is subscribed")


def test_a_push_of_another_process_wakes(driver: RedisDriver, elsewhere: RedisDriver, waiter: Waiter) -> None:
    subscribed(driver)
    elsewhere.push([new()])
    assert heard(driver, waiter)


def test_a_push_during_the_wait_wakes(driver: RedisDriver, elsewhere: RedisDriver, waiter: Waiter) -> None:
    subscribed(driver)
    with ThreadPoolExecutor() as threads:
        wait = threads.submit(heard, driver, waiter)
        wait_until(lambda: waiter._is_watching, "it waits")
        elsewhere.push([new()])
        assert wait.result(DEADLINE)


def test_a_job_handed_back_by_another_process_wakes(
    driver: RedisDriver, elsewhere: RedisDriver, waiter: Waiter
) -> None:
    elsewhere.push([new()])
    held = elsewhere.reserve("default", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=60).jobs
    subscribed(driver)
    waiter.pause(0)
    elsewhere.hand_back(held)
    assert heard(driver, waiter)


def test_a_push_of_this_process_wakes_without_the_server(driver: RedisDriver, stopping: Stopping) -> None:
    driver.notifies = False
    waiter = stopping.waiter()
    driver.listen(waiter)
    assert driver.ear is None
    driver.push([new()])
    assert waiter.pause(0)


def test_a_stop_ends_a_wait_at_once(driver: RedisDriver, stopping: Stopping, waiter: Waiter) -> None:
    with ThreadPoolExecutor() as threads:
        wait = threads.submit(heard, driver, waiter)
        wait_until(lambda: waiter._is_watching, "it waits")
        stopping.ask("the end")
        assert wait.result(DEADLINE)


def test_nobody_is_woken_for_a_queue_that_is_not_theirs(
    driver: RedisDriver, elsewhere: RedisDriver, stopping: Stopping
) -> None:
    mail, other = stopping.waiter(), stopping.waiter()
    driver.listen(mail, ["mail"])
    driver.listen(other, ["other"])
    subscribed(driver)
    elsewhere.push([new(queue="other")])
    assert heard(driver, other)
    assert not mail.pause(0)
    driver.unlisten(mail)
    driver.unlisten(other)


def test_when_one_that_listens_leaves_another_that_waits_listens(
    driver: RedisDriver, elsewhere: RedisDriver, stopping: Stopping
) -> None:
    first, second = stopping.waiter(), stopping.waiter()
    for waiter in (first, second):
        driver.listen(waiter)
    subscribed(driver)
    with ThreadPoolExecutor() as threads:
        listens = threads.submit(heard, driver, first)
        wait_until(lambda: first._is_watching, "the first listens")
        wait = threads.submit(heard, driver, second)
        wait_until(lambda: second._is_watching, "the second waits")
        driver.unlisten(first)
        first.wake()
        listens.result(DEADLINE)
        elsewhere.push([new()])
        assert wait.result(DEADLINE)
    driver.unlisten(second)


def test_who_leaves_tells_no_more_than_were_turned_away(driver: RedisDriver, waiter: Waiter) -> None:
    """Who begins first is the next; the others are turned away again, and told of its end by that one."""
    ear, told = driver.ear, []
    assert ear is not None
    assert ear.begin() is not None

    def again(number: int) -> Callable[[], None]:
        def on_free() -> None:
            told.append(number)
            if len(told) < 10:
                ear.begin(on_free)

        return on_free

    for number in range(3):
        assert ear.begin(again(number)) is None
    ear.end()
    assert len(told) == 3
    ear._turned_away.clear()
    ear.end()


def test_whoever_waits_first_hears_for_all(driver: RedisDriver, elsewhere: RedisDriver, stopping: Stopping) -> None:
    waiters = [stopping.waiter() for _ in range(3)]
    for waiter in waiters:
        driver.listen(waiter)
    subscribed(driver)
    with ThreadPoolExecutor() as threads:
        waits = [threads.submit(heard, driver, waiter) for waiter in waiters]
        wait_until(lambda: all(waiter._is_watching for waiter in waiters), "they wait")
        assert subscriptions(driver) == 1
        elsewhere.push([new()])
        assert all(wait.result(DEADLINE) for wait in waits)
    for waiter in waiters:
        driver.unlisten(waiter)


def test_messages_are_heard_wherever_the_network_cuts_them(driver: RedisDriver) -> None:
    heard: list[str] = []
    ear = NewsEar(driver._subscription, "news", heard.append)
    queues = ["mail", "ü", "a\r\n$7\r\nmessage", ""]
    texts = [queue.encode() for queue in queues]
    told = [b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$%d\r\n%b\r\n" % (len(text), text) for text in texts]
    for byte in b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n" + b"+PONG\r\n".join(told):
        ear._rest += bytes([byte])
        ear._read()
    assert heard == queues
    assert len(ear._rest) < 100


def test_what_comes_while_nobody_waits_is_taken(driver: RedisDriver, elsewhere: RedisDriver, waiter: Waiter) -> None:
    subscribed(driver)
    elsewhere.push([new()])
    assert driver.ear is not None
    ear = driver.ear

    def is_taken() -> bool:
        ear.drain()
        return not waiter._wakes.empty()

    wait_until(is_taken, "the news is taken")


def test_whatever_keeps_a_worker_from_subscribing_ends_no_wait(
    driver: RedisDriver, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise ValueError("no such option")

    monkeypatch.setattr(driver.ear, "_connect", broken)
    assert driver.ear is not None
    assert not waiter.pause(0.0, [driver.ear])


def test_a_wait_may_be_longer_than_the_system_can_count() -> None:
    with closing(Bell()) as bell:
        bell.ring()
        assert readable([bell.descriptor], 1e9) == [bell.descriptor]


def test_the_subscription_ends_with_the_last_listener(driver: RedisDriver, stopping: Stopping) -> None:
    waiter = stopping.waiter()
    driver.listen(waiter)
    subscribed(driver)
    driver.unlisten(waiter)
    assert driver.ear is None
    wait_until(lambda: subscriptions(driver) == 0, "nobody is subscribed")


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
    settings: Any, monkeypatch: pytest.MonkeyPatch, driver: RedisDriver, elsewhere: RedisDriver, stopping: Stopping
) -> None:
    """F31"""
    monkeypatch.setattr(redis_news, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(redis_news, "RECONNECT_SECONDS", 0.05)
    kwargs = driver.client.connection_pool.connection_kwargs
    with closing(Proxy(kwargs["host"], kwargs["port"])) as proxy:
        cache = {**settings.CACHES["redis"], "LOCATION": f"redis://127.0.0.1:{proxy.port}/{kwargs['db']}"}
        settings.CACHES = {**settings.CACHES, "proxied": cache}
        behind = RedisDriver("default", {"CACHE": "proxied", "PREFIX": driver.options.prefix})
        waiter = stopping.waiter()
        behind.listen(waiter)
        subscribed(behind)
        proxy.fall_silent()
        ends = time.monotonic() + DEADLINE
        while not heard(behind, waiter, 0.1):
            assert time.monotonic() < ends
            elsewhere.push([new()])
        behind.unlisten(waiter)
        behind.close()


def test_an_idle_wait_on_a_server_that_answers_is_no_error(
    driver: RedisDriver, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F31: signs of life are asked for, and arrive, on the first connection."""
    monkeypatch.setattr(redis_news, "SILENCE_SECONDS", 0.3)
    subscribed(driver)
    assert driver.ear is not None
    first = driver.ear._socket
    assert not heard(driver, waiter, 0.05)
    signs = {driver.ear._heard_at}
    ends = time.monotonic() + DEADLINE
    while len(signs) < 3:
        assert not heard(driver, waiter, 0.05)
        assert time.monotonic() < ends
        signs.add(driver.ear._heard_at)
    assert driver.ear._socket is first


def test_a_server_that_ends_the_connection_costs_nothing_but_the_news(
    driver: RedisDriver, elsewhere: RedisDriver, waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_news, "RECONNECT_SECONDS", 0.05)
    subscribed(driver)
    assert driver.ear is not None
    assert driver.ear._socket is not None
    driver.client.execute_command("CLIENT", "KILL", "ADDR", "{}:{}".format(*driver.ear._socket.getsockname()))
    ends = time.monotonic() + DEADLINE
    while not heard(driver, waiter, 0.1):
        assert time.monotonic() < ends
        elsewhere.push([new()])


def test_options_are_read_without_a_connection(settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "absent": {**settings.CACHES["redis"], "LOCATION": "redis://127.0.0.1:1/0"}}
    driver = RedisDriver("default", {"CACHE": "absent", "PREFIX": "shop:"})
    assert driver.options == RedisOptions(
        cache="absent", server="127.0.0.1:1/0", prefix="shop:", has_prefix=True, database=None
    )
    (problem,) = driver.problems()
    assert "not reachable" in problem
