"""Database servers of one's own, which a test may stop, kill and start again.

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
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import REQUIRE_SERVICES
from tests.helpers.waiting import DEADLINE, wait_until

DATABASE = "jobqueue"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def missing(what: str) -> None:
    """Skip loudly; where all services must be there, fail."""
    complaint = f"{what} is not installed, so no server of our own can be started"
    if REQUIRE_SERVICES:
        pytest.fail(complaint)
    pytest.skip(complaint)


class Server(ABC):
    user: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self) -> None:
        # Not in pytest's own folder, which other users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix=f"jobqueue-{self.user}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.folder / "log"
        self._log.touch()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user, self.user)

    # What each kind of server says

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
        wait_until(self._answers, lambda: f"the server answers:\n{self._log.read_text()}")

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
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def _as_owner(self) -> dict[str, Any]:
        owner = {"user": self.user, "group": self.user, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"cwd": self.folder, "stdin": subprocess.DEVNULL, **owner}

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            self.execute("SELECT 1")
        except Exception:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        process.wait(DEADLINE)
        self._wait_for_children(process.pid)

    def _wait_for_children(self, pid: int) -> None:
        """A server of several processes has ended when all of them have."""
        return


class PostgreSQL(Server):
    user = "postgres"
    stop_signal = signal.SIGINT

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
            "max_connections": "40",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [self._program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options]

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": DATABASE,
            "USER": "postgres",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            **changes,
        }

    def execute(self, sql: str) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True, connect_timeout=5
        ) as connection:
            connection.execute(sql)

    def _program(self, name: str) -> str:
        folder = self.folder_of_programs()
        assert folder is not None
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

        wait_until(are_gone, "the processes of PostgreSQL are gone")


class MariaDB(Server):
    user = "mysql"
    stop_signal = signal.SIGTERM

    def prepare(self) -> None:
        install = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
        assert install is not None
        data = f"--datadir={self.folder / 'data'}"
        self.run(install, "--no-defaults", data, "--skip-test-db", "--auth-root-authentication-method=normal")

    def command(self) -> list[str]:
        server = shutil.which("mariadbd") or shutil.which("mysqld")
        assert server is not None
        return [
            server,
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
            "NAME": DATABASE,
            "USER": "root",
            "PASSWORD": "",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            **changes,
        }

    def execute(self, sql: str) -> None:
        import MySQLdb

        connection = MySQLdb.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=5)
        with closing(connection):
            connection.autocommit(True)
            connection.cursor().execute(sql)


def private_postgresql() -> PostgreSQL:
    """A server that is not running yet."""
    if PostgreSQL.folder_of_programs() is None:
        missing("PostgreSQL (initdb)")
    return PostgreSQL()


def private_mariadb() -> MariaDB:
    if shutil.which("mariadb-install-db") is None or shutil.which("mariadbd") is None:
        missing("MariaDB (mariadb-install-db, mariadbd)")
    return MariaDB()
