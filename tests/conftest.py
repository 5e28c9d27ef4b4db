"""What every test may use: servers that may be missing, a clock, the drivers."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest
from django.conf import settings
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from django_jobqueue.drivers.base import Driver
from django_jobqueue.drivers.memory import MemoryDriver
from tests.drivers.contract import DATABASE, PORTABLE, Clock, Store
from tests.helpers.redis import REDIS, redis_driver

REQUIRE_SERVICES = os.environ.get("JOBQUEUE_REQUIRE_SERVICES") == "1"
RUN_SLOW = os.environ.get("JOBQUEUE_SLOW") == "1"
VENDORS = {
    "postgres": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
}

# A shell that starts pytest in its background has it ignore these, and so would every worker that a test signals.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (getattr(signal, "SIGHUP", None), signal.SIG_DFL),
    (getattr(signal, "SIGQUIT", None), signal.SIG_DFL),
):
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes is the machine's matter.
hypothesis_settings.register_profile("jobqueue", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("jobqueue")


def require_service(name: str, host: str, port: int) -> None:
    """Skip the test when nobody listens; fail it where all services must be there, as in CI."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        complaint = f"{name} does not answer on {host}:{port} ({error})"
        if REQUIRE_SERVICES:
            pytest.fail(complaint)
        pytest.skip(complaint)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """pytest-django asks for this before it creates the test database."""
    database = settings.DATABASES["default"]
    if database.get("PORT"):
        require_service(database["ENGINE"], database["HOST"], int(database["PORT"]))


@pytest.fixture(autouse=True)
def _services(request: pytest.FixtureRequest) -> None:
    engine = settings.DATABASES["default"]["ENGINE"]
    for marker, wanted in VENDORS.items():
        if request.node.get_closest_marker(marker) and engine != wanted:
            pytest.skip(f"needs JOBQUEUE_TEST_DATABASE={marker}")
    if request.node.get_closest_marker("slow") and not RUN_SLOW:
        pytest.skip("slow; JOBQUEUE_SLOW=1 runs it")
    if request.node.get_closest_marker("redis"):
        environ = os.environ.get
        require_service("Redis", environ("REDIS_HOST", "127.0.0.1"), int(environ("REDIS_PORT", "6379")))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _forms() -> list[str]:
    """PostgreSQL has statements of its own beside the portable form: the suite runs on both."""
    return [DATABASE, PORTABLE] if settings.DATABASES["default"]["ENGINE"] == VENDORS["postgres"] else [DATABASE]


@pytest.fixture(params=["memory", *_forms(), REDIS])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    if request.param == "memory":
        yield MemoryDriver("default", {})
    elif request.param == "redis":
        request.getfixturevalue("transactional_db")  # before anything is written, and emptied after that
        with redis_driver() as driver:
            yield driver
    else:
        from django_jobqueue.drivers.database import DatabaseDriver

        driver = DatabaseDriver("default", {"DATABASE": "default"})
        driver.uses_vendor_forms = request.param != "portable"
        yield driver
        driver.close()


@pytest.fixture
def store(driver: Driver, clock: Clock) -> Store:
    return Store(driver, clock)
