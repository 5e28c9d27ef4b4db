"""The Lua scripts, each run by its digest; a server that has lost them is given the text again.

A script is one operation: nothing is seen, or done by another, in the middle of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

_FOLDER = files(__package__) / "lua"
_PRELUDE = (_FOLDER / "prelude.lua").read_text()

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
        self.text = f"{_PRELUDE}\n{(_FOLDER / f'{name}.lua').read_text()}"
        self._digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()  # as Redis names scripts

    def run(self, client: Redis, keys: Sequence[str], arguments: Sequence[str | int | float]) -> Any:
        try:
            return client.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:  # a restart, a fail-over, SCRIPT FLUSH
            return client.eval(self.text, len(keys), *keys, *arguments)


SCRIPTS = {name: Script(name) for name in NAMES}
