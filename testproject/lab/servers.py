"""Servers of one's own, which may be stopped, killed and started again.

Each lives in a temporary folder and listens on a free port of this machine only. Servers refuse to run as root, so
they run as the user that their package made.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

# Far more than a start or a stop takes.
DEADLINE = 60.0
BETWEEN_LOOKS = 0.02


class ServerFailed(Exception):
    """A server did not do what it was told; the text has what it said."""


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server(ABC):
    user: str
    stop_signal: ClassVar[signal.Signals]
    question: ClassVar[str] = "SELECT 1"

    def __init__(self) -> None:
        # Not in a folder of the caller's, which other users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix=f"jobqueue-{self.user}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.folder / "log"
        self._log.touch()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user, self.user)

    # What each kind of server says

    @staticmethod
    @abstractmethod
    def is_installed() -> bool:
        """Whether this machine has the programs."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs in the foreground."""

    @abstractmethod
    def settings(self, **changes: Any) -> dict[str, Any]:
        """The entry of DATABASES."""

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run a statement as the server's owner, outside of any database."""

    # What all do

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, **self._as_owner())
        self._wait(self._answers, "the server answers")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it cleanly, without waiting for its clients."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str) -> None:
        """Run a program to its end, as the server's user."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE, check=False, **self._as_owner()
        )
        if done.returncode:
            raise ServerFailed(f"{command}: {done.stdout}{done.stderr}")

    def _as_owner(self) -> dict[str, Any]:
        owner = {"user": self.user, "group": self.user, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"cwd": self.folder, "stdin": subprocess.DEVNULL, **owner}

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"The server has ended:\n{self._log.read_text()}")
        try:
            self.execute(self.question)
        except Exception:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            raise ServerFailed("The server does not run.")
        process.send_signal(number)
        process.wait(DEADLINE)
        self._wait_for_children(process.pid)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > ends:
                raise ServerFailed(f"After {DEADLINE:g} s still not: {what}.\n{self._log.read_text()}")
            time.sleep(BETWEEN_LOOKS)

    def _wait_for_children(self, pid: int) -> None:
        """A server of several processes has ended when all of them have."""
        return


class PostgreSQL(Server):
    user = "postgres"
    stop_signal = signal.SIGINT

    @staticmethod
    def is_installed() -> bool:
        return PostgreSQL.folder_of_programs() is not None

    @staticmethod
    def folder_of_programs() -> Path | None:
        folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
        configured = shutil.which("pg_config")
        if configured:
            said = subprocess.run([configured, "--bindir"], capture_output=True, text=True, check=True)
            folders.append(Path(said.stdout.strip()))
        return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)

    def prepare(self) -> None:
        data = str(self.folder / "data")
        options = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self.run(self._program("initdb"), *options)
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("host all stranger 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",  # a commit survives a kill, though not a loss of power
            "shared_buffers": "16MB",
            "max_connections": "80",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [self._program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options]

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "jobqueue",
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            **changes,
        }

    def execute(self, sql: str) -> None:
        import psycopg  # noqa: PLC0415 - installed only where PostgreSQL is used

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True, connect_timeout=5
        ) as connection:
            connection.execute(sql)

    def _program(self, name: str) -> str:
        folder = self.folder_of_programs()
        if folder is None:
            raise ServerFailed("PostgreSQL is not installed.")
        return str(folder / name)

    def _wait_for_children(self, pid: int) -> None:
        """A killed postmaster leaves children, which end when they notice; the next start waits for their memory."""
        data = str(self.folder / "data")

        def are_gone() -> bool:
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    if os.readlink(entry / "cwd") == data:
                        return False
                except OSError:
                    continue
            return True

        self._wait(are_gone, "the processes of PostgreSQL are gone")


class MariaDB(Server):
    user = "mysql"
    stop_signal = signal.SIGTERM

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("mariadb-install-db") is not None and shutil.which("mariadbd") is not None

    def prepare(self) -> None:
        install = shutil.which("mariadb-install-db") or "mysql_install_db"
        data = f"--datadir={self.folder / 'data'}"
        self.run(install, "--no-defaults", data, "--skip-test-db", "--auth-root-authentication-method=normal")

    def command(self) -> list[str]:
        return [
            shutil.which("mariadbd") or "mysqld",
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            "--innodb-flush-log-at-trx-commit=2",  # a commit survives a kill, though not a loss of power
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
        ]

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": "jobqueue",
            "USER": "root",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            **changes,
        }

    def execute(self, sql: str) -> None:
        import MySQLdb  # noqa: PLC0415 - installed only where MySQL or MariaDB is used

        connection = MySQLdb.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=5)
        with closing(connection):
            connection.autocommit(True)
            connection.cursor().execute(sql)


class Redis(Server):
    """Or Valkey: the program that REDIS_SERVER names, or else what is installed."""

    stop_signal = signal.SIGTERM
    question = "PING"

    def __init__(self, **options: str) -> None:
        """The options are those of its configuration, with underscores."""
        # Where both packages are installed, either's user will do.
        self.user = "valkey" if os.path.expanduser("~redis") == "~redis" else "redis"
        super().__init__()
        self._options = {name.replace("_", "-"): value for name, value in options.items()}

    @staticmethod
    def is_installed() -> bool:
        return Redis.program() is not None

    @staticmethod
    def program() -> str | None:
        chosen = os.environ.get("REDIS_SERVER")
        return shutil.which(chosen) if chosen else shutil.which("redis-server") or shutil.which("valkey-server")

    def prepare(self) -> None:
        return

    def command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",  # what was written survives a kill, though not a loss of power
            **self._options,
        }
        options = [word for key, value in settings.items() for word in (f"--{key}", value)]
        return [self.program() or "redis-server", *options]

    def settings(self, **changes: Any) -> dict[str, Any]:
        """The entry of CACHES."""
        return {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{self.port}/0",
            "OPTIONS": {"SOCKET_TIMEOUT": 10, "SOCKET_CONNECT_TIMEOUT": 5},
            **changes,
        }

    def execute(self, sql: str) -> None:
        """Run a command of Redis."""
        import redis  # noqa: PLC0415 - installed only where Redis is used

        with closing(redis.Redis(port=self.port, socket_timeout=5, **self.client_options())) as client:
            client.execute_command(*sql.split())

    def client_options(self) -> dict[str, Any]:
        """What redis-py needs beside the port."""
        return {}
