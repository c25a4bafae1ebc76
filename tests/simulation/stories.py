"""Scripted worlds: what a person would try by hand, on virtual time, judged as every seed is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from romulus.testing.simulator.judge import Judge
from romulus.testing.simulator.people import nap
from romulus.testing.simulator.process import SimProcess
from romulus.testing.simulator.programs import Node
from romulus.testing.simulator.seed import Verdict, run_world
from romulus.testing.simulator.stage import Stage
from romulus.testing.simulator.tiny import SETTINGS
from romulus.testing.simulator.world import World

SECOND = 1_000_000  # µs


class Story(Stage):
    """One world with its people and workers, driven by a test."""

    async def worker(self, variant: str = "one", concurrency: int = 20) -> SimProcess:
        """Start a worker."""
        process = await self.world.boot_worker(variant, concurrency)
        self.servers.append(process)
        return process

    async def start(self, text: Node, run_id: str = "run1") -> None:
        """Start a run."""
        await self.people.start(run_id, text)

    async def until(self, run_id: str, status: str) -> None:
        """Wait until a run has a status."""
        for _ in range(1_000):
            if self.stands(run_id) == status:
                return
            await nap(self.world, 10_000)
        raise AssertionError(f"{run_id} is {self.stands(run_id)}, not {status}")

    async def wait(self, duration: int) -> None:
        """Let virtual time pass."""
        await nap(self.world, duration)

    def stands(self, run_id: str = "run1") -> str:
        """Return where a run stands."""
        return self.status(self.people.runs[run_id])


def told(story: Callable[[Story], Awaitable[None]], *, end: str = "succeeded") -> Verdict:
    """Run a story, then calm down until every run has ended; each must be *end*."""

    async def scenario(world: World) -> None:
        world.settings, world.hop_max = SETTINGS, 50
        told_by = Story(world)
        await world.prepare()
        await story(told_by)
        await told_by.calm_down()
        if not world.broken:
            Judge(told_by).judge()
        for run_id in told_by.people.runs:
            if told_by.stands(run_id) != end:
                world.fail(f"{run_id} is {told_by.stands(run_id)}, not {end}")

    return run_world("story", 1, scenario)
