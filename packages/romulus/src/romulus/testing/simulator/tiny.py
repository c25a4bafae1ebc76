"""Small machines, enumerated: a tiny program with a crash at every crash point in turn, and at pairs of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from romulus.worker.settings import SECOND, WorkerSettings

from .judge import Judge
from .people import nap
from .programs import TINY
from .scenario import LEASE
from .seed import Verdict, run_world
from .stage import Stage
from .world import VARIANTS, World

SETTINGS = WorkerSettings(lease=LEASE, activation_limit=3600 * SECOND, sweep=SECOND, alone_pause=SECOND)
CALM_MAX = 120 * SECOND


class TinyScenario(Stage):
    """One run, one worker at a time, another client or worker when one dies."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world)
        self._name = name

    async def run(self) -> None:
        """Start the run, keep a worker alive until it has ended, stop."""
        world = self.world
        world.settings, world.hop_max = SETTINGS, 50
        await world.prepare()
        await self.people.start("run1", TINY[self._name])
        await self._serve()
        while self.people.to_send:
            await self.people.send(*self.people.to_send.pop())
        end = world.loop.now + CALM_MAX
        while world.loop.now < end and not self.done() and not world.broken:
            await self._serve()
            await nap(world, 100_000)
        await self.stop_all()

    async def _serve(self) -> None:
        while not self.living():
            self.servers.append(await self.world.boot_worker(VARIANTS[0], 20))


def run_tiny(name: str, crash_at: Collection[int] = ()) -> Verdict:
    """Run a tiny program with crashes at the crash points of these numbers, 1 the first."""

    async def scenario(world: World) -> None:
        world.crash_at.update(crash_at)
        tiny = TinyScenario(world, name)
        await tiny.run()
        if not world.broken:
            Judge(tiny).judge()

    return run_world(f"{name!r} crashed at {sorted(crash_at)}", 1, scenario)


def every_crash(name: str) -> Iterator[Verdict]:
    """Yield what comes of a crash at the first crash point, the second, … until none is left."""
    point = 1
    while True:
        verdict = run_tiny(name, {point})
        yield verdict
        if verdict.points < point:
            return
        point += 1


def every_pair(name: str, stride: int, first: int = 1) -> Iterator[Verdict]:
    """Yield what comes of two crashes, the second at every *stride*-th crash point after the first."""
    while True:
        second = first + 1
        while True:
            verdict = run_tiny(name, {first, second})
            yield verdict
            if verdict.points < second:
                break
            second += stride
        if second == first + 1:
            return
        first += stride
