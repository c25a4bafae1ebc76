"""The processes beside a benchmark's own: a worker to be killed, a run to be lost, a writer. Started by `children`."""

from __future__ import annotations

import asyncio
import sys
import time

import romulus

from .engine import run
from .plan import Bench, load
from .renewals import write_and_renew
from .workflows import DAY_S, WORKFLOWS, marked

LAUNCH = "LAUNCH"  # printed when everything is imported and the worker is about to start
RUN_ID = "marked"


async def work(bench: Bench) -> None:
    """Work on whatever the store has, until killed."""
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    print(LAUNCH, time.monotonic(), flush=True)
    async with app.worker(concurrency=bench.plan.concurrency):
        await asyncio.sleep(DAY_S)


async def begin(bench: Bench, steps: int) -> None:
    """Complete *steps* steps of a run, then hang in the next, until killed."""
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    async with app.worker(concurrency=bench.plan.concurrency), app.client() as client:
        await client.start(marked.options(id=RUN_ID), steps)
        await asyncio.sleep(DAY_S)


def main() -> None:
    """Play the role that the command line names."""
    bench, role = load(sys.argv[1]), sys.argv[2]
    match role:
        case "work":
            run(bench.plan, work(bench))
        case "begin":
            run(bench.plan, begin(bench, int(sys.argv[3])))
        case "write":
            run(bench.plan, write_and_renew(bench))
        case _:
            raise SystemExit(f"no role {role!r}")


if __name__ == "__main__":
    main()
