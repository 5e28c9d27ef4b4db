"""What came out, as a table for people and as JSON for programs.

The JSON is one object:

- ``store``: ``connection``, ``vendor``, ``server``, ``library``, and the settings that decide what a commit costs
- ``host``: ``python``, ``django``, ``processors``, ``load`` (of the last minute, when the bench began)
- ``options``: ``jobs``, ``repeat``, ``reader_jobs``, ``memory_jobs``, ``measurements``
- ``figures``: a list of objects with ``measurement``, ``key``, ``label``, ``jobs``, ``value`` (the median of
  ``values``, one for each repeat), ``unit``, ``against``, ``ratio`` (null without a limit), ``target`` and ``met``
  (null without a target), ``note``
- ``skipped``: a list of objects with ``measurement`` and ``reason``
- ``profile``: null, or ``jobs``, ``rate``, ``overhead`` (how many times slower the profiler made it), ``groups`` (each
  ``group``, ``microseconds``, ``share``) and ``functions`` (each ``function``, ``calls``, ``microseconds``: own time)
- ``verified``: whether every job ran exactly once
- ``problems``: a list of sentences, empty when verified
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import django

from .figures import Result
from .measurements import Outcome
from .profiling import Profile
from .session import Session
from .targets import target_of

HEADS = ("measured", "jobs", "figure", "", "ratio", "against", "target", "met")
RIGHT = {1, 2, 4}


def host() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "django": django.get_version(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def document(
    session: Session, outcome: Outcome, profile: Profile | None, machine: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Everything, as plain values."""
    vendor = session.store.vendor
    return {
        "store": {"connection": session.alias, "vendor": vendor, **session.server},
        "host": machine,
        "options": options,
        "figures": [_figure(measurement, result, vendor) for measurement, result in outcome.results],
        "skipped": [{"measurement": skip.measurement, "reason": skip.reason} for skip in outcome.skipped],
        "profile": profile.document() if profile else None,
        "verified": not session.problems,
        "problems": session.problems,
    }


def _figure(measurement: str, result: Result, vendor: str) -> dict[str, Any]:
    target = target_of(result, vendor)
    return {
        "measurement": measurement,
        "key": result.key,
        "label": result.label,
        "jobs": result.jobs,
        "value": result.value,
        "values": list(result.values),
        "unit": result.unit,
        "against": result.against,
        "ratio": result.ratio,
        "target": target.text(result) if target else None,
        "met": target.is_met(result) if target else None,
        "note": result.note,
    }


def table(found: dict[str, Any]) -> str:
    """The document as text."""
    store, machine = found["store"], found["host"]
    parts = [
        f"{store['server']} by {store['library']}, connection {store['connection']!r}; "
        f"Python {machine['python']}, Django {machine['django']}, {machine['processors']} processors",
    ]
    if found["figures"]:
        parts.append(columns([HEADS, *(_cells(figure) for figure in found["figures"])], RIGHT))
        notes = [f"{figure['label']}: {figure['note']}" for figure in found["figures"] if figure["note"]]
        parts.append("\n".join(dict.fromkeys(notes)))
    if found["profile"]:
        parts.append(profile_text(found["profile"]))
    parts += [f"Skipped {skip['measurement']}: {skip['reason']}." for skip in found["skipped"]]
    parts.append("Every job ran exactly once." if found["verified"] else "\n".join(found["problems"]))
    return "\n\n".join(filter(None, parts))


def profile_text(profile: dict[str, Any]) -> str:
    groups = [("one job", "µs", "share")]
    groups += [(row["group"], f"{row['microseconds']:.1f}", f"{row['share']:.0%}") for row in profile["groups"]]
    groups.append(("together", f"{1e6 / profile['rate']:.1f}", "100%"))
    functions = [("under the profiler, own time a job", "calls", "µs")]
    functions += [
        (row["function"], f"{row['calls']:.2f}", f"{row['microseconds']:.2f}") for row in profile["functions"]
    ]
    return "\n\n".join(
        (
            f"One drain of {profile['jobs']:,} no-op jobs in one process: {profile['rate']:,.0f} jobs/s. "
            f"The profiler made it {profile['overhead']:.1f} times slower.",
            columns(groups, {1, 2}),
            columns(functions, {1, 2}),
        )
    )


def _cells(figure: dict[str, Any]) -> tuple[str, ...]:
    ratio, met = figure["ratio"], figure["met"]
    return (
        figure["label"],
        f"{figure['jobs']:,}",
        number(figure["value"]),
        figure["unit"],
        "" if ratio is None else f"{ratio:.2f} x",
        figure["against"],
        figure["target"] or "",
        "" if met is None else ("met" if met else "not met"),
    )


def number(value: float) -> str:
    """With as many decimals as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def columns(rows: Iterable[Sequence[str]], right: set[int]) -> str:
    """Rows of cells as aligned text, the first one the heads."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    cells.insert(1, ["-" * width for width in widths])
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
