"""The registry: which handler runs a job of which name. Nothing is imported because a stored row names it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from threading import Lock
from typing import NamedTuple

from ..exceptions import InvalidOption, UnknownJob
from .definition import Definition, origin

OWN_NAMES = "django_jobqueue."


class Resolver(NamedTuple):
    """Knows of handlers that others than ``@job`` make."""

    #: None for a name that is none of its own, an error for one that is and cannot be run.
    find: Callable[[str], Definition | None]
    #: For how many seconds such a job keeps its result; None for a name that is none of its own. Imports nothing.
    keep_result: Callable[[str], float | None]
    #: Whose jobs it finds, which cannot be counted before they are asked for.
    sources: Callable[[], list[str]]


class Registry:
    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._resolvers: tuple[Resolver, ...] = ()
        self._lock = Lock()

    def add_resolver(self, resolver: Resolver) -> None:
        """Ask ``resolver`` from now on about names that nobody registered."""
        with self._lock:
            self._resolvers = (*self._resolvers, resolver)

    def register(self, definition: Definition) -> None:
        """Add a definition; a second function under one name is refused, the same one again replaces itself."""
        with self._lock:
            known = self._definitions.get(definition.name)
            if known is not None and origin(known.func) != origin(definition.func):
                raise InvalidOption(
                    f"Two handlers have the name {definition.name!r}: {_where(known)} and {_where(definition)}. "
                    'Give one of them another: @job(name="…").'
                )
            self._definitions[definition.name] = definition

    def unregister(self, name: str) -> None:
        with self._lock:
            self._definitions.pop(name, None)

    def find(self, name: str) -> Definition | None:
        """The definition of a name; None when there is none, or when what should know it fails, as ``get`` says."""
        definition = self._definitions.get(name)
        if definition is None and self._resolvers:
            with suppress(BaseException):  # a resolver may run the project's code, which must not end the worker
                return self._resolve(name)
        return definition

    def get(self, name: str) -> Definition:
        """The definition of a name; UnknownJob, with the nearest names, when there is none."""
        definition = self._definitions.get(name) or self._resolve(name)
        if definition is None:
            raise UnknownJob(self._unknown(name))
        return definition

    def keep_result(self, name: str) -> float | None:
        """For how many seconds a job of this name keeps its result; None where it does not say so itself.

        Imports no handler, and needs none: it is asked inside of transactions, of jobs that will not run. Nothing that
        is wrong with a resolver's settings keeps anybody from cancelling.
        """
        definition = self._definitions.get(name)
        if definition is not None:
            return definition.keep_result
        for resolver in self._resolvers:
            with suppress(Exception):
                answer = resolver.keep_result(name)
                if answer is not None:
                    return answer
        return None

    def _resolve(self, name: str) -> Definition | None:
        for resolver in self._resolvers:
            definition = resolver.find(name)
            if definition is not None:
                return definition
        return None

    def definitions(self) -> list[Definition]:
        """All definitions of the project's, by name; those of our own jobs concern nobody."""
        return [self._definitions[name] for name in sorted(self._definitions) if not name.startswith(OWN_NAMES)]

    def sources(self) -> list[str]:
        """Whose jobs can be run beside those of ``definitions``."""
        return [source for resolver in self._resolvers for source in resolver.sources()]

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, [one.name for one in self.definitions()], n=3, cutoff=0.5)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        return (
            f"No handler is registered under the name {name!r}.{hint} Handlers are functions with @job in the "
            'modules that JOBQUEUE["MODULES"] names (jobs.py of every installed app, unless set).'
        )


def _where(definition: Definition) -> str:
    code = getattr(definition.func, "__code__", None)
    line = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    module, qualified = origin(definition.func)[:2]
    return f"{module}.{qualified}{line}"


registry = Registry()
