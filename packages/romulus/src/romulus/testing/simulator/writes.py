"""One write, enumerated: a crash or a stop at every crash point, by what the provider can do and by how it behaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from romulus.worker.settings import SECOND

from .operating import Reviewing, judged
from .people import nap
from .programs import Node
from .scenario import LEASE
from .seed import Verdict, run_world
from .stage import CALM_MAX
from .tiny import SETTINGS
from .world import VARIANTS, World

# How the provider takes the first send, and how many lookups get no answer.
BEHAVIOURS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "answers": ("answer", 0),
        "refuses": ("refuse", 0),
        "is out of reach": ("unreachable", 0),
        "loses the request": ("lost before", 0),
        "loses the answer": ("lost after", 0),
        "loses the answer, cannot be asked": ("lost after", 9),
        "applies late": ("slow", 0),
        "applies late, loses the answer": ("slow and lost", 0),
        "applies late, the sender dies": ("slow and killed", 0),
    }
)
STOPS: Final = (LEASE - SECOND, LEASE + SECOND // 5, 3 * LEASE)  # µs: within the lease, until nobody has noticed yet, long past it
Disturb = Callable[[World], object]


class OneWrite(Reviewing):
    """One run with a step, a write and a step; one worker that runs is kept alive until the run has ended."""

    def __init__(self, world: World, kind: str, behaviour: str) -> None:
        super().__init__(world)
        way, silent = BEHAVIOURS[behaviour]
        self._program: Node = [
            "seq", [["step", "quick", "a", 0, 0], ["write", kind, "w", [way], silent, 10], ["step", "quick", "b", 0, 0]],
        ]  # fmt: skip

    async def run(self) -> None:
        """Start it, keep a worker running, stop."""
        world = self.world
        world.settings, world.hop_max = SETTINGS, 50
        await world.prepare()
        await self.people.start("run1", self._program)
        end = world.loop.now + CALM_MAX
        while world.loop.now < end and not self.done() and not world.broken:
            if all(process.stalled_until > world.loop.now for process in self.living()):
                self.servers.append(await world.boot_worker(VARIANTS[0], 20, self.pools))
            await self._release_held()
            await nap(world, 100_000)
        await self._all_awake()
        await self.stop_all()

    async def _all_awake(self) -> None:
        """Let a process that stands still go on, and do what it was about to do."""
        stopped = [until - self.world.loop.now for process in self.living() if (until := process.stalled_until) > self.world.loop.now]
        if stopped:
            await nap(self.world, max(stopped) + LEASE)


def run_write(kind: str, behaviour: str, disturb: Disturb = lambda world: None, name: str = "undisturbed") -> Verdict:
    """Run one write of that ability, answered that way, in a world that *disturb* was done to."""

    async def one(world: World) -> None:
        disturb(world)
        scenario = OneWrite(world, kind, behaviour)
        await judged(scenario, scenario.run())

    return run_world(f"{kind}, the provider {behaviour}, {name}", 1, one)


def every_crash_of(kind: str, behaviour: str, stride: int = 1, first: int = 1) -> Iterator[Verdict]:
    """Yield what comes of a crash at every *stride*-th crash point, from *first* on."""
    return _each_point(stride, first, lambda at: run_write(kind, behaviour, lambda world: world.crash_at.add(at), f"crash at {at}"))


def every_stop_of(kind: str, behaviour: str, duration: int, stride: int = 1, first: int = 1) -> Iterator[Verdict]:
    """Yield what comes of a stop of *duration* µs at every *stride*-th crash point, from *first* on, while another worker takes over."""

    def run(at: int) -> Verdict:
        return run_write(kind, behaviour, lambda world: world.stop_at.update({at: duration}), f"stopped for {duration} µs at {at}")

    return _each_point(stride, first, run)


def every_frozen_send_of(kind: str, behaviour: str, step: int, first: int = 0) -> Iterator[Verdict]:
    """Yield what comes of a stop between the check and the send, each *step* µs longer than the one before, until long past the lease."""
    for duration in range(first, 3 * LEASE, step):
        yield frozen_send(kind, behaviour, duration)


def frozen_send(kind: str, behaviour: str, duration: int) -> Verdict:
    """Run one write whose process is stopped for *duration* µs between its check and its first send."""
    return run_write(kind, behaviour, lambda world: world.send_stops.append(duration), f"its send frozen for {duration} µs")


def _each_point(stride: int, first: int, run: Callable[[int], Verdict]) -> Iterator[Verdict]:
    point = first
    while True:
        verdict = run(point)
        yield verdict
        if verdict.points < point:
            return
        point += stride
