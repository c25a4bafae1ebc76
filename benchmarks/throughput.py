"""W1, W2 and W4: durable steps a second with many runs at once, and with one."""

from __future__ import annotations

from .engine import batch, run, working
from .figure import Benchmark, Figure, PeerField, Samples, at_least, at_least_share
from .measures import median
from .plan import Bench, Plan


def many_runs(bench: Bench) -> Samples:
    """W1: runs of several steps in a row, all at once."""
    plan = bench.plan
    return {"W1": plan.runs * plan.steps / _batches(bench, plan.runs, plan.steps)}


def one_step_runs(bench: Bench) -> Samples:
    """W2: runs of one step, all at once."""
    return {"W2": bench.plan.one_step_runs / _batches(bench, bench.plan.one_step_runs, 1)}


def one_long_run(bench: Bench) -> Samples:
    """W4: one run of many steps in a row."""
    return {"W4": bench.plan.steps_in_a_row / _batches(bench, 1, bench.plan.steps_in_a_row)}


def _batches(bench: Bench, runs: int, steps: int) -> float:
    """Return the median seconds of a batch."""
    return run(bench.plan, _measure(bench, runs, steps))


async def _measure(bench: Bench, runs: int, steps: int) -> float:
    async with working(bench.url(), bench.plan.concurrency) as client:
        return median([await batch(client, runs, steps) for _ in range(bench.plan.batches)])


def _w1(plan: Plan) -> tuple[Figure, ...]:
    targets = at_least(10_000), at_least_share(0.2, "L2.batched", "L2 best")
    what = f"{plan.runs} runs × {plan.steps} steps at once"
    return (Figure("W1", what, "steps/s", "L2.batched", targets, PeerField("W1", "steps_s")),)


def _w2(plan: Plan) -> tuple[Figure, ...]:
    what = f"{plan.one_step_runs:,} runs of one step, start to result"
    return (Figure("W2", what, "runs/s", "L2.batched", (at_least(3_000),), PeerField("W2", "wf_s")),)


def _w4(plan: Plan) -> tuple[Figure, ...]:
    what = f"one run, {plan.steps_in_a_row:,} steps in a row"
    return (Figure("W4", what, "steps/s", "L2.1", (at_least_share(0.5, "L2.1", "L2 single"),), PeerField("W4", "steps_s")),)


W1 = Benchmark("W1", _w1, many_runs)
W2 = Benchmark("W2", _w2, one_step_runs)
W4 = Benchmark("W4", _w4, one_long_run)
