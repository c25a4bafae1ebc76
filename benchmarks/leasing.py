"""Lease renewal while several processes write to one file as fast as they can."""

from __future__ import annotations

from contextlib import ExitStack

from .children import Child
from .figure import Benchmark, Figure, Samples, at_most
from .plan import Bench, Plan
from .renewals import COUNT, SLOWEST, STEPS


def renewal(bench: Bench) -> Samples:
    """Have every writer time its renewals; the slowest of all is the figure."""
    with ExitStack() as stack:
        writers = [stack.enter_context(Child(bench, "write")) for _ in range(bench.plan.writers)]
        said = [(writer.wait_for(SLOWEST), writer.wait_for(COUNT), writer.wait_for(STEPS)) for writer in writers]
    return {
        "lease.p100": max(slowest for slowest, _, _ in said) * 1e3,
        "lease.renewals": sum(count for _, count, _ in said),
        "lease.steps": sum(steps for _, _, steps in said) / bench.plan.writing_s,
    }


def _figures(plan: Plan) -> tuple[Figure, ...]:
    target = at_most(round(plan.lease_s / 3 * 1e3), "ms")
    writers = f"{plan.writers} processes writing"
    return (
        Figure("lease.p100", f"{writers}: slowest renewal of a lease of {plan.lease_s:g} s", "ms", "L2.commit", (target,)),
        Figure("lease.renewals", "renewals timed", ""),
        Figure("lease.steps", f"{writers}: steps of all together", "steps/s", "L2.batched"),
    )


RENEWAL = Benchmark("lease", _figures, renewal)
