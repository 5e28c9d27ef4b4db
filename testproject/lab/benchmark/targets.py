"""What each figure should reach. Shown beside the figures, and never asserted: machines differ."""

from __future__ import annotations

from dataclasses import dataclass

from .figures import Result

POSTGRESQL, MYSQL, SQLITE, REDIS = "postgresql", "mysql", "sqlite", "redis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound of a figure, or of its ratio; ``vendors`` are the stores that it is meant for."""

    key: str
    bound: float
    is_of_ratio: bool = True
    is_most: bool = False
    vendors: tuple[str, ...] = (POSTGRESQL,)

    def is_met(self, result: Result) -> bool | None:
        value = result.ratio if self.is_of_ratio else result.value
        if value is None:
            return None
        return value <= self.bound if self.is_most else value >= self.bound

    def text(self, result: Result) -> str:
        word = "at most" if self.is_most else "at least"
        return f"{word} {self.bound:g} x" if self.is_of_ratio else f"{word} {self.bound:,.10g} {result.unit}"


TARGETS = (
    Target(key="dispatch", bound=0.9),
    Target(key="dispatch-many", bound=50_000, is_of_ratio=False),
    Target(key="drain.1", bound=0.35, vendors=(POSTGRESQL, MYSQL)),
    Target(key="drain.1", bound=15_000, is_of_ratio=False, vendors=(SQLITE,)),
    Target(key="drain.1", bound=0.2, vendors=(REDIS,)),
    Target(key="drain.2", bound=1.25),
    Target(key="drain.commits", bound=0.05, is_of_ratio=False, is_most=True),
    Target(key="each", bound=0.75),
    Target(key="batch", bound=1.15, is_most=True, vendors=(POSTGRESQL, MYSQL, SQLITE, REDIS)),
    Target(key="not-analyzed", bound=0.9),
    Target(key="long-reader", bound=0.7),
    Target(key="one-ms", bound=0.85),
    Target(key="pickup.noop.p50", bound=3, is_of_ratio=False, is_most=True),
    Target(key="pickup.noop.p99", bound=5, is_of_ratio=False, is_most=True),
    Target(key="pickup.noop.p50", bound=1.5, is_of_ratio=False, is_most=True, vendors=(REDIS,)),
    Target(key="pickup.noop.p99", bound=2.5, is_of_ratio=False, is_most=True, vendors=(REDIS,)),
    Target(key="connections.notify", bound=0.85),
    Target(key="memory", bound=10, is_of_ratio=False, is_most=True),
)


def target_of(result: Result, vendor: str) -> Target | None:
    return next((target for target in TARGETS if target.key == result.key and vendor in target.vendors), None)
