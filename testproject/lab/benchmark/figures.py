"""Figures: what a measurement yields, and what several repeats of it come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RATE = "jobs/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of one run; ``limit`` is what it is held against, and ``against`` the words for that."""

    key: str
    label: str
    value: float
    jobs: int
    unit: str = RATE
    against: str = ""
    limit: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.limit if self.limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A figure over all repeats: medians, where the ratio is the median of the repeats' own ratios."""

    key: str
    label: str
    value: float
    values: tuple[float, ...]
    jobs: int
    unit: str
    against: str
    ratio: float | None
    note: str


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all are not above: always one that was measured."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("There is no percentile of nothing.")
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def merged(figures: Sequence[Figure]) -> list[Result]:
    """One result for each key, in the order in which the keys came first."""
    by_key: dict[str, list[Figure]] = {}
    for figure in figures:
        by_key.setdefault(figure.key, []).append(figure)
    return [_merged(repeats) for repeats in by_key.values()]


def _merged(repeats: list[Figure]) -> Result:
    first = repeats[0]
    values = tuple(figure.value for figure in repeats)
    ratios = [figure.ratio for figure in repeats if figure.ratio is not None]
    return Result(
        key=first.key,
        label=first.label,
        value=statistics.median(values),
        values=values,
        jobs=first.jobs,
        unit=first.unit,
        against=first.against,
        ratio=statistics.median(ratios) if ratios else None,
        note=first.note,
    )
