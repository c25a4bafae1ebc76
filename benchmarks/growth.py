"""Long histories and wide fan-outs: what a step costs late in a run, and many steps or children at once in one run."""

from __future__ import annotations

import time
from typing import Any

import romulus

from .engine import run, working
from .figure import Benchmark, Figure, Samples, at_most
from .plan import SQLITE, Bench, Plan
from .workflows import family, fan_out, in_a_row, stamped_row, stamps

WINDOW = 5  # a window is a fifth of the run: a few slow commits must not decide
FLAT_MAX = 1.25  # what still counts as flat: less than this is the disk's own drift
FAN_OUT_MAX = 1.5
CHILDREN_MAX_S = 15


def long_run(bench: Bench) -> Samples:
    """RB-35: one run of very many steps, each noting when it begins."""
    window = bench.plan.flat_steps // WINDOW
    run(bench.plan, _stamp(bench))
    first, last = _step_us(stamps[: window + 1]), _step_us(stamps[-window - 1 :])
    return {"flat.first": first, "flat.last": last, "flat.ratio": last / first}


async def _stamp(bench: Bench) -> None:
    async with working(bench.url(), bench.plan.concurrency) as client:
        stamps.clear()
        await (await client.start(stamped_row, bench.plan.flat_steps)).result()


def _step_us(times: list[float]) -> float:
    return (times[-1] - times[0]) / (len(times) - 1) * 1e6


def wide_run(bench: Bench) -> Samples:
    """Fan out many steps in one run, and take the same steps in a row."""
    return run(bench.plan, _wide(bench))


async def _wide(bench: Bench) -> Samples:
    steps = bench.plan.fan_out
    async with working(bench.url(), bench.plan.concurrency) as client:
        at_once = await _took(client, fan_out, steps)
        in_turn = await _took(client, in_a_row, steps)
        return {"fan_out": at_once / steps * 1e6, "fan_out.row": in_turn / steps * 1e6, "fan_out.ratio": at_once / in_turn}


def many_children(bench: Bench) -> Samples:
    """Start many children of one run at once, from its start to its result."""
    return {"children": run(bench.plan, _family(bench))}


async def _family(bench: Bench) -> float:
    async with working(bench.url(), bench.plan.concurrency) as client:
        return await _took(client, family, bench.plan.children)


async def _took(client: romulus.AsyncClient, workflow: romulus.Workflow[[int], Any], steps: int) -> float:
    started = time.perf_counter()
    await (await client.start(workflow, steps)).result()
    return time.perf_counter() - started


def _flat(plan: Plan) -> tuple[Figure, ...]:
    window = plan.flat_steps // WINDOW
    return (
        Figure("flat.first", f"run of {plan.flat_steps:,} steps: cost of one among the first {window:,}", "µs"),
        Figure("flat.last", f"the same among the last {window:,}", "µs"),
        Figure("flat.ratio", "the second by the first", "×", None, (at_most(FLAT_MAX, "×"),)),
    )


def _fan_out(plan: Plan) -> tuple[Figure, ...]:
    return (
        Figure("fan_out", f"one run, {plan.fan_out:,} steps at once: cost of one", "µs"),
        Figure("fan_out.row", "the same steps in a row: cost of one", "µs"),
        Figure("fan_out.ratio", "the first by the second", "×", None, (at_most(FAN_OUT_MAX, "×"),)),
    )


def _children(plan: Plan) -> tuple[Figure, ...]:
    targets = (at_most(CHILDREN_MAX_S, "s"),) if plan.store == SQLITE else ()
    return (Figure("children", f"one run, {plan.children:,} children of one step at once: start to result", "s", None, targets),)


FLAT = Benchmark("flat", _flat, long_run)
FAN_OUT = Benchmark("fan-out", _fan_out, wide_run)
CHILDREN = Benchmark("children", _children, many_children)
