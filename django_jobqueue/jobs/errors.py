"""A failed attempt as bounded text: what is kept of an exception, and how errors of one cause are recognised.

No exception object, frame or argument outlives the attempt: only text is kept, cut to what a page can show
and a database can store.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

MAX_CLASS = 255
MAX_MESSAGE = 500
MAX_TRACEBACK = 16_384
FINGERPRINT_VERSION = 1
_OWN_CODE = str(Path(__file__).parent.parent)
MASKED = "••••••"
SHORTEST_SECRET = 3  # masking every "a" of a text would hide nothing but the text

_VARIABLE_PARTS = re.compile(
    r"'[^']*'|\"[^\"]*\""  # quoted values
    r"|0x[0-9a-fA-F]+"  # addresses
    r"|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}"  # UUIDs
    r"|\b[0-9a-fA-F]{12,}\b"  # hexadecimal ids
    r"|\d+"
)
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line \d+, in (?P<function>.+)$', re.MULTILINE)
_NOT_PROJECT_CODE = re.compile(r"site-packages|[/\\]lib[/\\]python\d|django_jobqueue[/\\]|^<")


def class_path(error: BaseException) -> str:
    kind = type(error)
    path = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return storable(path)[:MAX_CLASS]


def message_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # whatever a handler's class does, its worker goes on
        text = f"<str() of the error raised {type(broken).__name__}>"
    return shortened(mask(storable(text), secrets), MAX_MESSAGE)


def traceback_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    try:
        text = "".join(traceback.format_exception(type(error), error, _below_our_own_frames(error)))
    except BaseException as broken:
        text = f"<formatting the traceback raised {type(broken).__name__}>"
    return shortened(mask(storable(text), secrets), MAX_TRACEBACK)


def _below_our_own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the handler on: how we came to call it tells its author nothing."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OWN_CODE):
        frame = frame.tb_next
    return frame or error.__traceback__


def storable(text: str) -> str:
    """Text that every database takes: NUL and lone surrogates become visible escapes."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """Text of a row as one line that no terminal interprets: white space is one space, controls are escaped."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters, of a longer text the first and the last part."""
    if len(text) <= limit:
        return text
    note = f" … {len(text) - limit} characters cut … "
    kept = limit - len(note)
    return text[: kept // 2] + note + text[-(kept - kept // 2) :]


def mask(text: str, secrets: Collection[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MASKED)
    return text


def fingerprint(name: str, exception_class: str, message: str, traceback_text: str) -> str:
    """A SHA-256 in hex, the same for errors of one cause.

    Made of the job's name, the class, the innermost frame of the project's own code, and the message without
    its numbers, ids and quoted values.
    """
    parts = (name, exception_class, _innermost_project_frame(traceback_text), _VARIABLE_PARTS.sub("#", message))
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _innermost_project_frame(traceback_text: str) -> str:
    frames = [f"{frame['file']}:{frame['function']}" for frame in _FRAME.finditer(traceback_text)]
    own = [frame for frame in frames if not _NOT_PROJECT_CODE.search(frame)]
    return (own or frames or [""])[-1]
