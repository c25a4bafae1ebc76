"""A figure: what is measured, in which unit, beside which raw limit, and what it must reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .plan import Bench, Plan

Samples = dict[str, float]  # by the figure's key
Medians = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that the median must keep; it may depend on the raw limits of the same run."""

    text: str
    bound: Callable[[Medians], float]  # KeyError: what it depends on was not measured
    least: bool  # the median must not be below; else not above

    def reached(self, medians: Medians, value: float) -> bool | None:
        """Return whether *value* keeps the bound; None: what the bound depends on was not measured."""
        try:
            bound = self.bound(medians)
        except KeyError:
            return None
        return value >= bound if self.least else value <= bound


@dataclass(frozen=True, slots=True)
class PeerField:
    """Where the peers' result lines have the same figure."""

    workload: str
    field: str
    size: tuple[str, int] | None = None  # only lines where this field has this value


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    key: str
    what: str
    unit: str
    limit: str | None = None  # key of the raw limit that the table divides it by
    targets: tuple[Target, ...] = ()
    peer: PeerField | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What measures some figures together, in a process of its own."""

    name: str  # as on the command line
    figures: Callable[[Plan], tuple[Figure, ...]]
    measure: Callable[[Bench], Samples]


def at_least(value: float, unit: str = "") -> Target:
    """Return the target that a figure is not below *value*."""
    return Target(f"≥ {value:,g} {unit}".rstrip(), lambda _: value, least=True)


def at_most(value: float, unit: str = "") -> Target:
    """Return the target that a figure is not above *value*."""
    return Target(f"≤ {value:,g} {unit}".rstrip(), lambda _: value, least=False)


def at_least_share(share: float, limit: str, name: str) -> Target:
    """Return the target that a figure is at least that share of a raw limit of the same run."""
    return Target(f"≥ {share:.0%} of {name}", lambda medians: share * medians[limit], least=True)
