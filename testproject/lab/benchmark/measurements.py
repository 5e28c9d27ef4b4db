"""The measurements by name, and how they are run: one after the other, each as often as asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from . import batching, dispatching, draining
from .figures import Figure, Result, merged
from .pickup import pickup
from .session import Session
from .stores import Unsupported
from .workers import WorkerFailed

Measurement = Callable[[Session], Iterator[Figure]]

NAMES = (
    "dispatch",
    "dispatch-many",
    "drain",
    "each",
    "promises",
    "batch",
    "not-analyzed",
    "long-reader",
    "one-ms",
    "pickup",
    "connections",
    "memory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    measurement: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    results: list[tuple[str, Result]]
    skipped: list[Skipped]


def measurements(*, reader_jobs: int, memory_jobs: int) -> Mapping[str, Measurement]:
    """All of them, in the order in which they run."""
    return {
        "dispatch": dispatching.dispatch,
        "dispatch-many": dispatching.dispatch_many,
        "drain": draining.drain,
        "each": draining.each,
        "promises": draining.promises,
        "batch": batching.batch,
        "not-analyzed": draining.not_analyzed,
        "long-reader": partial(draining.long_reader, jobs=reader_jobs),
        "one-ms": draining.one_ms,
        "pickup": pickup,
        "connections": dispatching.at_once,
        "memory": partial(draining.memory, jobs=memory_jobs),
    }


def run_all(session: Session, chosen: Mapping[str, Measurement], repeat: int) -> Outcome:
    """What cannot be measured here is skipped with its reason; what fails is a problem of the session."""
    results: list[tuple[str, Result]] = []
    skipped: list[Skipped] = []
    for number, (name, measure) in enumerate(chosen.items(), 1):
        title = f"[{number}/{len(chosen)}] {name}"
        try:
            figures = _repeated(session, title, measure, repeat)
        except Unsupported as reason:
            session.say(f"    skipped: {reason}")
            skipped.append(Skipped(measurement=name, reason=str(reason)))
        except WorkerFailed as error:
            session.problems.append(f"{session.doing}: {error}")
        else:
            results += [(name, result) for result in merged(figures)]
    return Outcome(results=results, skipped=skipped)


def picked(all_measurements: Mapping[str, Measurement], names: Sequence[str] | None) -> dict[str, Measurement]:
    return {name: measure for name, measure in all_measurements.items() if not names or name in names}


def _repeated(session: Session, title: str, measure: Measurement, repeat: int) -> list[Figure]:
    figures: list[Figure] = []
    for turn in range(1, repeat + 1):
        session.begin(title if repeat == 1 else f"{title}, {turn} of {repeat}")
        for figure in measure(session):
            figures.append(figure)
            session.say(f"    {_spoken(figure)}")
    return figures


def _spoken(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f", {figure.ratio:.2f} x {figure.against}"
    return f"{figure.label}: {figure.value:,.3f} {figure.unit}{ratio}"
