"""W1, W2 and W4: durable steps a second with many runs at once, and with one."""

from __future__ import annotations

from contextlib import ExitStack

import romulus

from .child import LAUNCH
from .children import Child
from .engine import batch, run, working
from .figure import Benchmark, Figure, PeerField, Samples, at_least, at_least_share
from .measures import median
from .plan import POSTGRES, Bench, Plan
from .workflows import WORKFLOWS


def many_runs(bench: Bench) -> Samples:
    """W1: runs of several steps in a row, all at once."""
    plan = bench.plan
    return {"W1": plan.runs * plan.steps / _batches(bench, plan.runs, plan.steps)}


def workers(bench: Bench) -> Samples:
    """W1 with one worker in a process of its own, and with two."""
    one, two = (run(bench.plan, _with_workers(bench, count)) for count in (1, 2))
    work = bench.plan.runs * bench.plan.steps
    return {"workers.one": work / one, "workers.two": work / two, "workers.ratio": one / two}


async def _with_workers(bench: Bench, count: int) -> float:
    """Return the median seconds of a batch."""
    plan = bench.plan
    with ExitStack() as stack:
        children = [stack.enter_context(Child(bench, "work")) for _ in range(count)]
        for child in children:
            child.wait_for(LAUNCH)
        async with romulus.App(bench.url(), workflows=WORKFLOWS).client() as client:
            await batch(client, plan.runs, 1)
            return median([await batch(client, plan.runs, plan.steps) for _ in range(plan.batches)])


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
    targets = (at_least(6_000),) if plan.store == POSTGRES else (at_least(10_000), at_least_share(0.2, "L2.batched", "L2 best"))
    what = f"{plan.runs} runs × {plan.steps} steps at once"
    return (Figure("W1", what, "steps/s", "L2.batched", targets, PeerField("W1", "steps_s")),)


def _w2(plan: Plan) -> tuple[Figure, ...]:
    what = f"{plan.one_step_runs:,} runs of one step, start to result"
    target = at_least(2_000 if plan.store == POSTGRES else 3_000)
    return (Figure("W2", what, "runs/s", "L2.batched", (target,), PeerField("W2", "wf_s")),)


def _w4(plan: Plan) -> tuple[Figure, ...]:
    what = f"one run, {plan.steps_in_a_row:,} steps in a row"
    return (Figure("W4", what, "steps/s", "L2.1", (at_least_share(0.5, "L2.1", "L2 single"),), PeerField("W4", "steps_s")),)


def _workers(plan: Plan) -> tuple[Figure, ...]:
    what = f"{plan.runs} runs × {plan.steps} steps at once"
    return (
        Figure("workers.one", f"{what}, worked by a process of its own", "steps/s", "L2.batched"),
        Figure("workers.two", f"{what}, worked by two", "steps/s", "L2.batched"),
        Figure("workers.ratio", "the second by the first", "×", None, (at_least(1, "×"),)),
    )


W1 = Benchmark("W1", _w1, many_runs)
W2 = Benchmark("W2", _w2, one_step_runs)
W4 = Benchmark("W4", _w4, one_long_run)
WORKERS = Benchmark("workers", _workers, workers)
