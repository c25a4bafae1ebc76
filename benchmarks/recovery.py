"""W5 and takeover: from a killed process to the next step executing in another."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

from .child import LAUNCH
from .children import Child
from .figure import Benchmark, Figure, PeerField, Samples, at_most
from .measures import median
from .plan import Bench, Plan
from .workflows import MARK

REPLAY_S = 0.5
TAKEOVER_EXTRA_S = 1.0
TAKEOVER_STEPS = 10


def replay(bench: Bench) -> Samples:
    """W5: a process with a long run is killed; another is started and goes on with it."""
    samples: Samples = {}
    for steps in bench.plan.histories:
        lost = replace(bench, directory=bench.directory / f"lost-{steps}")
        lost.directory.mkdir()
        _lose_a_run(lost, steps)
        took = [_restart(lost, bench.directory / f"again-{steps}-{n}") for n in range(bench.plan.batches)]
        samples[f"W5.{steps}.launch"] = median([launch for launch, _ in took])
        samples[f"W5.{steps}.process"] = median([process for _, process in took])
    return samples


def _lose_a_run(bench: Bench, steps: int) -> None:
    """Leave a store as kill -9 leaves it, with a run of *steps* completed steps and one attempt begun."""
    with Child(bench, "begin", steps) as child:
        child.wait_for(MARK)


def _restart(lost: Bench, directory: Path) -> tuple[float, float]:
    """Return the seconds from launch and from process start to the next step executing, on a copy of the lost store."""
    shutil.copytree(lost.directory, directory)
    with Child(replace(lost, directory=directory), "work") as child:
        launched = child.wait_for(LAUNCH)
        reached = child.wait_for(MARK)
        return reached - launched, reached - child.started


def takeover(bench: Bench) -> Samples:
    """A run's worker is killed, or stopped so that only its lease tells; a worker that stands by takes the run over."""
    killed = [_taken_over(bench, f"killed-{n}", signal.SIGKILL) for n in range(bench.plan.batches)]
    stopped = [_taken_over(bench, f"stopped-{n}", signal.SIGSTOP) for n in range(bench.plan.batches)]
    return {"takeover.killed": median(killed), "takeover.lease": median(stopped)}


def _taken_over(bench: Bench, name: str, how: signal.Signals) -> float:
    bench = replace(bench, directory=bench.directory / name)
    bench.directory.mkdir()
    with Child(bench, "begin", TAKEOVER_STEPS) as first:
        first.wait_for(MARK)
        with Child(bench, "work") as second:
            second.wait_for(LAUNCH)
            time.sleep(bench.plan.lease_s)  # the second stands by; the first has renewed its lease
            stopped = time.monotonic()
            os.kill(first.pid, how)
            return second.wait_for(MARK) - stopped


def _w5(plan: Plan) -> tuple[Figure, ...]:
    figures: list[Figure] = []
    for steps in plan.histories:
        targets = (at_most(REPLAY_S, "s"),) if steps == max(plan.histories) else ()
        what = f"killed after {steps:,} steps"
        figures += [
            Figure(f"W5.{steps}.launch", f"{what}: launch → next step", "s", None, targets, _peer(steps, "launch_to_step_s")),
            Figure(f"W5.{steps}.process", f"{what}: process start → next step", "s", None, (), _peer(steps, "restart_to_step_s")),
        ]
    return tuple(figures)


def _peer(steps: int, field: str) -> PeerField:
    return PeerField("W5", field, ("steps", steps))


def _takeover(plan: Plan) -> tuple[Figure, ...]:
    target = at_most(plan.lease_s + TAKEOVER_EXTRA_S, "s")
    return (
        Figure("takeover.killed", "worker killed -9, another standing by → next step", "s", None, (target,)),
        Figure("takeover.lease", f"worker frozen, lease of {plan.lease_s:g} s runs out → next step", "s", None, (target,)),
    )


W5 = Benchmark("W5", _w5, replay)
TAKEOVER = Benchmark("takeover", _takeover, takeover)
