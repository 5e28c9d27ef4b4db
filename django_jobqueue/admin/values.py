"""Payloads and metadata on a page: keys and types for everybody, values for some, masked values for nobody.

Whatever a row holds, text comes out: bounded, in plain characters, and escaped by the template.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from ..conf import get_settings
from ..exceptions import InvalidPayload
from ..jobs.definition import Definition
from ..jobs.errors import MASKED, shortened
from ..jobs.payloads import Path, decode, decode_metadata

MAX_SHOWN = 65_536
MAX_PREVIEW = 2_000
MAX_NAME = 255
DEEPEST = 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One argument, or one key of the metadata."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of a payload; ``problem`` says why it cannot be read, ``preview`` is how it begins."""

    entries: list[Entry] = field(default_factory=list)
    problem: str = ""
    preview: str = ""

    @property
    def is_readable(self) -> bool:
        return not self.problem


class Secrecy:
    """Which values nobody sees: those at the paths stored with the job, and those whose name is secret today."""

    def __init__(self, masked: str, definition: Definition | None) -> None:
        self._settings = get_settings()
        self._sensitive = definition.sensitive if definition is not None else frozenset()
        self._paths = _paths(masked)

    @property
    def has_paths(self) -> bool:
        """Whether values were masked when the job was dispatched; paths that cannot be read may mean any value."""
        return self._paths is None or bool(self._paths)

    def hides(self, path: Path, name: str) -> bool:
        return self._paths is None or path in self._paths or self.hides_name(name)

    def hides_name(self, name: str) -> bool:
        return bool(name) and (name in self._sensitive or self._settings.is_secret(name))

    def values(self, text: str, format_version: int, names: tuple[str, ...]) -> list[str]:
        """The texts of the hidden values of a payload, to be masked wherever they turn up."""
        try:
            args, kwargs = decode(text, format_version)
        except InvalidPayload:
            return []
        found: list[str] = []
        for path, name, value in _arguments(args, kwargs, names):
            self._collect(value, path, name, False, found, 0)
        return found

    def _collect(self, value: Any, path: Path, name: str, hidden: bool, found: list[str], depth: int) -> None:
        hidden = hidden or self.hides(path, name)
        if depth < DEEPEST and isinstance(value, dict | list | tuple):
            for step, item_name, item in _items(value):
                self._collect(item, (*path, step), item_name, hidden, found, depth + 1)
        elif hidden and value is not None and not isinstance(value, bool | dict | list | tuple):
            found.append(str(value))


def show_payload(
    text: str, format_version: int, secrecy: Secrecy, definition: Definition | None, *, with_values: bool
) -> Shown:
    try:
        args, kwargs = decode(text, format_version)
    except InvalidPayload as error:
        return _unreadable(text, str(error), secrecy, with_values)
    names = definition.parameter_names if definition is not None else ()
    entries = [_entry(name, value, path, secrecy, with_values) for path, name, value in _arguments(args, kwargs, names)]
    return Shown(_bounded(entries))


def show_metadata(text: str, secrecy: Secrecy, *, with_values: bool) -> Shown:
    if not text:
        return Shown()
    try:
        metadata = decode_metadata(text)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        return _unreadable(text, f"{type(error).__name__}: {error}", secrecy, with_values)
    entries = [_entry(str(key), value, ("metadata", key), secrecy, with_values) for key, value in metadata.items()]
    return Shown(_bounded(entries))


def _arguments(args: list[Any], kwargs: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[Path, str, Any]]:
    for index, value in enumerate(args):
        name = names[index] if index < len(names) else _("argument %(number)d") % {"number": index + 1}
        yield ("args", index), name, value
    for name, value in kwargs.items():
        yield ("kwargs", name), name, value


def _entry(name: str, value: Any, path: Path, secrecy: Secrecy, with_values: bool) -> Entry:
    pieces = _pieces(value, path, name, secrecy, with_values, 0)
    return Entry(plain(name)[:MAX_NAME], type(value).__name__, _joined(pieces, MAX_SHOWN))


def _bounded(entries: Iterable[Entry]) -> list[Entry]:
    """As many entries as fit on a page."""
    kept: list[Entry] = []
    room = MAX_SHOWN
    for entry in entries:
        if room <= 0:
            kept.append(Entry("…", "", _("The rest is cut.")))
            break
        kept.append(Entry(entry.name, entry.kind, shortened(entry.text, max(room, MAX_PREVIEW))))
        room -= len(entry.name) + len(entry.text)
    return kept


def _unreadable(text: str, reason: str, secrecy: Secrecy, with_values: bool) -> Shown:
    """A reason may quote the text, and in text that cannot be read nobody can say where the secrets are."""
    if not with_values:
        return Shown(problem=_("It cannot be read."))
    if secrecy.has_paths or secrecy.hides_name(text):
        return Shown(problem=_("It cannot be read, and is not shown, since it may hold masked values."))
    return Shown(problem=plain(shortened(reason, MAX_PREVIEW)), preview=plain(shortened(text, MAX_PREVIEW)))


def _paths(masked: str) -> set[Path] | None:
    if not masked:
        return set()
    try:
        return {tuple(path) for path in json.loads(masked)}
    except (ValueError, TypeError, RecursionError):
        return None


def _items(value: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[str | int, str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, key, item
    else:
        for index, item in enumerate(value):
            yield index, "", item


_BRACKETS = {dict: ("{", "}"), list: ("[", "]"), tuple: ("(", ")")}


def _pieces(value: Any, path: Path, name: str, secrecy: Secrecy, with_values: bool, depth: int) -> Iterator[str]:
    """The text of a value, in pieces, so that a reader who has enough can stop."""
    if secrecy.hides(path, name):
        yield MASKED
    elif isinstance(value, dict | list | tuple):
        opening, closing = _BRACKETS[type(value)]
        if not value or depth >= DEEPEST:
            yield f"{opening}{'…' if value else ''}{closing}"
            return
        yield opening
        indent = "\n" + "  " * (depth + 1)
        for step, item_name, item in _items(value):
            yield f"{indent}{_text(step)}: " if isinstance(step, str) else indent
            yield from _pieces(item, (*path, step), item_name, secrecy, with_values, depth + 1)
            yield ","
        yield "\n" + "  " * depth + closing
    elif with_values:
        yield _leaf(value)
    else:
        yield type(value).__name__


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return f"{type(value).__name__}({_text(str(value))})"


def _text(value: str) -> str:
    return plain(json.dumps(shortened(value, MAX_SHOWN), ensure_ascii=False))


def _joined(pieces: Iterator[str], limit: int) -> str:
    kept: list[str] = []
    room = limit
    for piece in pieces:
        kept.append(piece)
        room -= len(piece)
        if room < 0:
            break
    text = "".join(kept)
    return text if room >= 0 else f"{text[:limit]}\n…"


def plain(text: str) -> str:
    """Text whose invisible characters, such as those that change the direction of writing, are escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )
