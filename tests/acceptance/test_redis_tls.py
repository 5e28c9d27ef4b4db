"""A Redis that takes connections by TLS only, reached by the settings that the page on Redis shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django_redis", reason="django-redis is not installed")
pytest.importorskip("trustme", reason="trustme is not installed")

import trustme
from django.core.management import CommandError, call_command

from django_jobqueue.drivers import connections
from django_jobqueue.drivers.redis import RedisDriver
from django_jobqueue.drivers.redis import news as redis_news
from django_jobqueue.jobs.records import Complete, ReserveLimit
from django_jobqueue.running.stopping import Stopping
from lab.servers import Redis
from tests.drivers.contract import new
from tests.helpers.processes import ROOT, Processes, database_settings
from tests.helpers.servers import private_redis, running
from tests.helpers.waiting import DEADLINE, wait_until
from tests.helpers.work.jobs import mark

pytestmark = [
    pytest.mark.process,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("private server"),
]

PAGE = ROOT / "docs" / "howto" / "redis.md"
FOLDER = "/etc/ssl/redis"  # what the page calls the folder of the certificates
HOST = "redis.example.com:6379"  # and the server
ENTRY = {"DRIVER": "redis", "CACHE": "queue", "PREFIX": "shop:", "DATABASE": "default"}


class TLSRedis(Redis):
    """Answers by TLS only, and asks clients for a certificate; those of an authority of its own lie in its folder."""

    def prepare(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.pem")
        for name, owner in (("server", "localhost"), ("client", "worker.example.com"), ("other", "other.example.com")):
            issued = authority.issue_cert(owner)
            issued.private_key_pem.write_to_path(self.folder / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(self.folder / f"{name}.pem")

    def command(self) -> list[str]:
        options = {
            "port": "0",
            "tls-port": str(self.port),
            "tls-ca-cert-file": str(self.folder / "ca.pem"),
            **self._certificate("server"),
        }
        return [*super().command(), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def client_options(self) -> dict[str, Any]:
        files = {"ca_certs": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"}
        return {"ssl": True, **{f"ssl_{kind}": str(self.folder / name) for kind, name in files.items()}}

    def show(self, name: str) -> None:
        """Another certificate, to whoever connects from now on."""
        files = (word for pair in self._certificate(name).items() for word in pair)
        self.execute(f"CONFIG SET {' '.join(files)}")

    def _certificate(self, name: str) -> dict[str, str]:
        path = self.folder / name
        return {"tls-cert-file": f"{path}.pem", "tls-key-file": f"{path}.key"}


@pytest.fixture
def server() -> Iterator[TLSRedis]:
    with running(private_redis(TLSRedis)) as server:
        yield server


def shown_on_the_page(server: Redis) -> dict[str, Any]:
    """CACHES of the page, with this server and its files."""
    (code,) = re.findall(r"^```python\n(# settings.py, with TLS\n.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    namespace: dict[str, Any] = {}
    exec(code.replace(HOST, f"localhost:{server.port}").replace(FOLDER, str(server.folder)), namespace)  # noqa: S102
    caches: dict[str, Any] = namespace["CACHES"]
    return caches


def driver_on(settings: Any, caches: dict[str, Any]) -> RedisDriver:
    settings.CACHES = {**settings.CACHES, **caches}
    settings.JOBQUEUE = {"CONNECTIONS": {"default": ENTRY}}
    driver = connections["default"]
    assert isinstance(driver, RedisDriver)
    return driver


def of_the_pool(caches: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = caches["queue"]["OPTIONS"]["CONNECTION_POOL_KWARGS"]
    return options


def test_a_waiting_worker_hears_of_a_job_and_runs_it(server: TLSRedis, settings: Any, tmp_path: Path) -> None:
    caches = shown_on_the_page(server)
    driver = driver_on(settings, caches)
    processes = Processes(tmp_path, {"default": database_settings()})
    processes.settings["CACHES"] = settings.CACHES
    processes.settings["JOBQUEUE"] |= {"CONNECTIONS": {"default": ENTRY}, "POLL_INTERVAL": 3600}
    try:
        (worker,) = processes.workers(1)
        wait_until(lambda: driver.client.client_list(_type="pubsub"), "the worker listens")
        mark.dispatch("heard")
        wait_until(lambda: processes.marks.count("ran", "heard") == 1, lambda: f"the job ran:\n{worker.output}")
        assert worker.stop() == 0
        assert worker.complaints == []
    finally:
        processes.end_all()
        driver.close()


def test_a_client_needs_no_certificate_where_the_server_asks_for_none(server: TLSRedis, settings: Any) -> None:
    server.execute("CONFIG SET tls-auth-clients no")
    caches = shown_on_the_page(server)
    del of_the_pool(caches)["ssl_certfile"], of_the_pool(caches)["ssl_keyfile"]
    driver = driver_on(settings, caches)
    assert driver.problems() == []
    driver.push([new()])
    held = driver.reserve("default", "w1", ReserveLimit(rows=1, max_attempts=3), retry_after=90).jobs
    assert len(driver.settle([Complete(job) for job in held])) == 1
    driver.close()


@pytest.mark.parametrize(
    ("missing", "shown", "said"),
    [
        (["ssl_ca_certs"], "server", "certificate verify failed"),
        ([], "other", "not valid for 'localhost'"),
        # Whether the server's reason arrives before the end of the connection is not certain.
        (["ssl_certfile", "ssl_keyfile"], "server", "."),
    ],
    ids=["of an unknown authority", "of another name", "none of the client's"],
)
def test_a_certificate_that_proves_nothing_is_an_error_where_the_queue_is_used(
    server: TLSRedis, settings: Any, missing: list[str], shown: str, said: str
) -> None:
    server.show(shown)
    caches = shown_on_the_page(server)
    for name in missing:
        del of_the_pool(caches)[name]
    driver = driver_on(settings, caches)
    with pytest.raises(driver.outages, match=said):
        driver.push([new()])
    with pytest.raises(CommandError, match=f"The Redis of the queue connection 'default' is not reachable: .*{said}"):
        call_command("queue_work", stop_when_empty=True)
    driver.close()


def test_news_that_came_together_are_heard_at_once(
    server: TLSRedis, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has been decrypted and not read yet makes no socket readable: who waits for that hears it with the next."""
    monkeypatch.setattr(redis_news, "SILENCE_SECONDS", 3600)  # the answer to a sign of life would be the next
    monkeypatch.setattr(redis_news, "READ_BYTES", 64)  # less than a record holds
    driver = driver_on(settings, shown_on_the_page(server))
    elsewhere = RedisDriver("default", {"CACHE": "queue", "PREFIX": "shop:", "DATABASE": "default"})
    queues = [f"queue-{number}" for number in range(50)]
    stopping = Stopping()
    waiters = {queue: stopping.waiter() for queue in queues}
    for queue in queues:
        driver.listen(waiters[queue], [queue])
    assert driver.ear is not None
    assert driver.ear.begin() is not None
    driver.ear.end()
    elsewhere.push([new(queue=queue) for queue in queues])  # one script, whose messages are sent in one piece
    for queue in reversed(queues):  # the first to wait is meant by the last message
        assert waiters[queue].pause(DEADLINE, [driver.ear]), queue
    for queue in queues:
        driver.unlisten(waiters[queue])
        stopping.dismiss(waiters[queue])
    driver.close()
