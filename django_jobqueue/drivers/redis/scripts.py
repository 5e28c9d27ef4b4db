"""The Lua scripts, each run by its digest; a server that has lost them is given the text again.

A script is one operation: nothing is seen, or done by another, in the middle of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from .ends import Argument
from .wire import Wire

_FOLDER = files(__package__) / "lua"
# Its parts lie between blank lines, and each says in its first words what it makes known.
_PRELUDE = (_FOLDER / "prelude.lua").read_text().strip().split("\n\n")
_MADE_KNOWN = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")

NAMES = (
    "aside",
    "batch_add",
    "batch_awaited",
    "batch_cancel",
    "batch_close",
    "batch_get",
    "batch_prune",
    "batch_remove",
    "batch_sweep",
    "cancel",
    "claim",
    "clear",
    "clear_remove",
    "get",
    "held",
    "hold",
    "peek",
    "progress",
    "prune",
    "push",
    "renew",
    "reserve",
    "result",
    "settle",
    "sizes",
    "stage",
    "waiting",
)


class Script:
    def __init__(self, name: str) -> None:
        self.text = _with_prelude((_FOLDER / f"{name}.lua").read_text())
        self._digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()  # as Redis names scripts

    def run(self, wire: Wire, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        try:
            return wire.call(self._digest, keys, arguments)
        except NoScriptError:  # a restart, a fail-over, SCRIPT FLUSH
            return wire.teach(self.text, keys, arguments)


def _with_prelude(script: str) -> str:
    """A script behind those parts of the prelude that it uses: the server runs all of its text at each call."""
    parts, words = [], set(_WORD.findall(script))
    for part in reversed(_PRELUDE):
        if words.intersection(", ".join(_MADE_KNOWN.findall(part)).split(", ")):
            parts.append(part)
            words.update(_WORD.findall(part))
    return "\n".join([*reversed(parts), script])


SCRIPTS = {name: Script(name) for name in NAMES}
