"""What the commands have in common: how they print, what they refuse, and dead letters by reference or all.

On a terminal they print aligned columns for people; in a pipe ``key=value`` lines, or JSON Lines with ``--json``.
Text that comes from rows is escaped, every line is flushed, and a reader that has gone away disturbs nobody.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from shutil import get_terminal_size
from threading import RLock
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.core.management.color import no_style
from django.db import DatabaseError, InterfaceError, OperationalError
from django.utils import timezone

from ..conf import get_settings
from ..drivers import Driver, connections
from ..exceptions import InvalidConnection, InvalidOption
from ..jobs.definition import MAX_COUNT
from ..jobs.errors import printable
from ..jobs.names import check_queue
from ..jobs.times import seconds

EVERY_QUEUE = "*"
USAGE_ERROR = 2
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Console:
    """Where a command prints. ``on_broken_pipe`` is called, once, when nobody reads any more."""

    def __init__(
        self, command: BaseCommand, options: dict[str, Any], on_broken_pipe: Callable[[], None] = lambda: None
    ) -> None:
        self._out = command.stdout
        self._err = command.stderr
        self._on_broken_pipe = on_broken_pipe
        self._lock = RLock()  # lines come from several threads
        self._is_open = True
        self.is_json = bool(options.get("json"))
        self.asks = self._out.isatty()
        self.is_terminal = not self.is_json and (self.asks or bool(options.get("force_color")))
        plain = not self.is_terminal or (os.environ.get("NO_COLOR") and not options.get("force_color"))
        self.style = no_style() if plain else command.style

    def write(self, line: str) -> None:
        """Print a line of data, on stdout."""
        with self._lock:
            if self._is_open:
                try:
                    _write(self._out, line)
                except BrokenPipeError:
                    self._give_up()

    def say(self, line: str) -> None:
        """Print a message, on stderr."""
        with self._lock, suppress(BrokenPipeError):
            _write(self._err, line)

    def record(self, **facts: Any) -> None:
        """One record, for programs."""
        self.write(as_json(facts) if self.is_json else key_values(facts))

    def event(self, event: str, level: int = logging.INFO, **facts: Any) -> None:
        """A line of the same form as those of the log."""
        self.record(**event_facts(datetime.now(UTC), level), event=event, **facts)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned, numbers to the right; as wide as the terminal at most."""
        columns = []
        for title, *cells in zip(titles, *rows, strict=True):
            width = max(map(len, [title, *cells]))
            is_number = all(cell.replace(",", "").isdigit() for cell in cells)
            columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in [title, *cells]])
        for number, row in enumerate(zip(*columns, strict=True)):
            line = cut("  ".join(row).rstrip(), get_terminal_size().columns)
            self.write(line if number else self.style.MIGRATE_HEADING(line))

    def _give_up(self) -> None:
        self._is_open = False
        wrapper: Any = self._out
        if wrapper._out is sys.stdout:
            # What is buffered still would raise when Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._on_broken_pipe()


def _write(out: OutputWrapper, line: str) -> None:
    encoding = getattr(out, "encoding", None) or "utf-8"
    try:
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError):
        pass  # a full disk, a closed file: what is printed matters less than what is done


# Text


def key_values(facts: dict[str, Any]) -> str:
    """``ts`` and ``level`` stand bare at the beginning of a line, all else is ``key=value``."""
    bare = [str(facts[key]).upper() if key == "level" else facts[key] for key in ("ts", "level") if key in facts]
    pairs = [
        f"{key}={_quoted(value)}" for key, value in facts.items() if key not in {"ts", "level"} and value is not None
    ]
    return " ".join([*bare, *pairs])


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = printable(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\\') else text


def as_json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, default=str)  # ASCII, so that no terminal interprets it


def event_facts(moment: datetime, level: int) -> dict[str, Any]:
    return {"ts": iso(moment), "level": logging.getLevelName(level).lower()}


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Rounded to what a person wants to know: 41 ms, 2.5 s, 12 min, 3 h, 2 d."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            number = seconds / length
            return f"{number:.1f}".removesuffix(".0") + f" {unit}" if number < 10 else f"{number:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def ago(moment: datetime) -> str:
    return f"{duration(max(0.0, round((timezone.now() - moment).total_seconds())))} ago"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def last_name(dotted: str) -> str:
    return printable(dotted.rpartition(".")[2])


# What is refused


def add_connection(parser: ArgumentParser) -> None:
    parser.add_argument("--connection", metavar="NAME", help='only of this connection of JOBQUEUE["CONNECTIONS"]')


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON Lines: one object per record")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what a person can mend into one line and an exit code."""
    try:
        yield
    except InvalidOption as error:
        raise CommandError(str(error), returncode=USAGE_ERROR) from error
    except InvalidConnection as error:
        raise CommandError(str(error)) from error
    except (OperationalError, InterfaceError) as error:
        raise CommandError(f"The store is not reachable: {printable(str(error))}") from error
    except CommandError:
        raise
    except Exception as error:
        if isinstance(error, DatabaseError) or not isinstance(error, _outages()):
            raise
        raise CommandError(f"The store is not reachable, or refuses: {printable(str(error))}") from error


def _outages() -> tuple[type[BaseException], ...]:
    """Of all stores; a command need not know which clients they have."""
    try:
        return tuple(outage for driver in connections.all() for outage in driver.outages)
    except (ImproperlyConfigured, InvalidConnection):
        return ()


def check_settings() -> None:
    try:
        get_settings()
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error


def usable(drivers: Sequence[Driver], *, for_workers: bool = False, rows_only: bool = False) -> None:
    """Raise CommandError, a line for each problem, unless all can work, or their databases can."""
    found = (driver.row_problems() if rows_only else driver.problems() for driver in drivers)
    problems = [problem for some in found for problem in some]
    if for_workers and not drivers:
        problems = [
            "Every queue connection lives in the memory of one process, where no worker of another process finds its "
            'jobs; use the driver "database".'
        ]
    if problems:
        raise CommandError("\n".join(problems))


def check_store(connection: str | None, *, rows_only: bool = False) -> None:
    """Raise CommandError unless the settings and the named connection, or all, can work; or their databases can."""
    check_settings()
    with plain_errors():
        usable(connections.all() if connection is None else [connections[connection]], rows_only=rows_only)


# What is parsed, from the command line as text, from call_command as anything


def name_list(given: object) -> list[str]:
    """Names from ``a,b``, or from a list of such; each once, in order."""
    values = given if isinstance(given, list | tuple) else [] if given is None else [given]
    return list(dict.fromkeys(name.strip() for value in values for name in str(value).split(",")))


def queue_list(given: object) -> list[str]:
    """Names of queues, or only ``*``."""
    names = name_list(given)
    if EVERY_QUEUE in names and len(names) > 1:
        raise InvalidOption("--queue * is every queue already: give names, or *.")
    return names if names == [EVERY_QUEUE] else [check_queue(name) for name in names]


def one_queue(given: str | None) -> str | None:
    """The name of a queue; None, as ``*``, is every queue."""
    return None if given is None or given == EVERY_QUEUE else check_queue(given)


def count(flag: str, given: object, *, zero_is_none: bool = False) -> int | None:
    try:
        number = given if given is None or isinstance(given, int) else int(str(given))
    except ValueError:
        number = -1
    if number is None or (zero_is_none and number == 0):
        return None
    if isinstance(given, bool) or not 1 <= number <= MAX_COUNT:
        raise InvalidOption(f"{flag} must be a whole number of at least 1, not {given!r}.")
    return number


def span(flag: str, given: object, *, is_positive: bool = False) -> float | None:
    """Seconds."""
    if given is None:
        return None
    number = seconds(flag, _number(given))
    if is_positive and not number:
        raise InvalidOption(f"{flag} must be more than 0 seconds.")
    return number


def age(flag: str, given: object) -> float | None:
    """Seconds, or a number with a unit: ``90``, ``90s``, ``10m``, ``2h``, ``7d``; more than 0."""
    unit = given[-1:] if isinstance(given, str) else ""
    if isinstance(given, str) and unit in UNITS and (number := _number(given[:-1])) != given[:-1]:
        return span(flag, float(str(number)) * UNITS[unit], is_positive=True)
    return span(flag, given, is_positive=True)


def pauses(flag: str, given: object) -> float | tuple[float, ...] | None:
    """Seconds, or several separated by commas."""
    if given is None:
        return None
    values = given if isinstance(given, list | tuple) else str(given).split(",")
    found = tuple(seconds(flag, _number(value)) for value in values)
    return found[0] if len(found) == 1 else found or None


def _number(given: object) -> object:
    try:
        return float(given) if isinstance(given, str) else given
    except ValueError:
        return given
