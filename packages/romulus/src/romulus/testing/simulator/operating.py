"""Seeds whose programs write to a provider: the scenario, its reviewer, and what must hold of every operation at the end (promise 6)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from romulus.core.errors import OperationConflict
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.operations import SETTLED, Applied, GiveUp, NotApplied
from romulus.core.record import HoldKind
from romulus.worker.settings import SECOND

from .judge import Judge
from .people import nap
from .programs import Author
from .provider import OPERATIONS, Emission, Provider, provide, with_writes
from .scenario import Action, Scenario, draw_rates
from .seed import Verdict, run_world
from .stage import CALM_MAX, Stage
from .tiny import SETTINGS
from .world import VARIANTS, World

SURE_AFTER: Final = 30 * SECOND  # virtual µs after which nothing that was begun can still arrive
QUIET: Final = "SELECT id, state, updated_at FROM operations"


class Reviewing(Stage):
    """A stage with a provider, and a person who settles what only a person can."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.provider = Provider(lambda: world.loop.now, lambda: world.loop.current, self.state)
        provide(self.provider)

    async def review(self) -> None:
        """Say of one operation that waits for a person what is known of it."""
        for operation_id, state, since in self.operations():
            if state == "held":
                await self._resolve(operation_id, since)
                return

    async def _release_held(self) -> None:
        await self.review()
        rows = {run.id: self.row(run) for run in self.people.runs.values()}
        if not any(row is not None and row.hold_kind == HoldKind.REVIEW for row in rows.values()):
            await super()._release_held()
            return
        for run in self.people.runs.values():
            row = rows[run.id]
            if row is not None and row.status == RunStatus.HELD and row.hold_kind != HoldKind.REVIEW:
                await self.people.release(run)

    async def _resolve(self, operation_id: str, since: int) -> None:
        """Resolve it by the truth; that nothing was applied is only said once nothing can arrive any more."""
        effects = [each for each in self.provider.effects(operation_id) if (each.applied_at or 0) <= self.world.loop.now]
        resolution: Any = Applied(effects[0].label) if effects else NotApplied()
        if not effects and not self._sure(operation_id):
            if self.random.random() < 0.9:
                return
            resolution = GiveUp()
        with contextlib.suppress(OperationConflict):
            await self.people.ask(lambda sim: sim.client.resolve_operation(operation_id, resolution, reason="looked", reviewer="ada"))

    def _sure(self, operation_id: str) -> bool:
        sent = [each.at for each in self.provider.emissions if each.operation == operation_id]
        return max(sent, default=0) + SURE_AFTER < self.world.loop.now and not any(p.stalled_until > 0 for p in self.living())

    def done(self) -> bool:
        """Return whether every run has ended and every operation is settled."""
        ended = all(self.status(run) in TERMINAL for run in self.people.runs.values())
        return ended and all(state in SETTLED for _, state, _ in self.operations())

    def operations(self) -> list[tuple[str, str, int]]:
        """Return (ID, state, last change) of every operation that is stored."""
        assert self.world.reader is not None
        return [(row[0], row[1], row[2]) for row in self.world.reader.rows(QUIET)]

    def state(self, operation_id: str) -> str:
        """Return an operation's state in the store, "" where there is none."""
        return next((state for known, state, _ in self.operations() if known == operation_id), "")


class Operating(Reviewing, Scenario):
    """A scenario with operations."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._count = 0

    async def start_run(self) -> None:
        """Start a run of a new program that writes."""
        if self._count < 4:
            self._count += 1
            author = Author(self.world.fork_random(), f"r{self._count}.", variants=False)
            await self.people.start(f"run{self._count}", with_writes(self.random, author.program()), **self._options())

    def _actions(self) -> dict[Action, int]:
        return super()._actions() | {self.review: 3}


class OneWrite(Reviewing):
    """One run with a step, a write and a step; a worker is kept alive until the run has ended."""

    def __init__(self, world: World, kind: str, way: str) -> None:
        super().__init__(world)
        self._write = ["write", kind, "w", [way], 0, 10]

    async def run(self) -> None:
        """Start it, keep a worker alive, stop."""
        world = self.world
        world.settings, world.hop_max = SETTINGS, 50
        await world.prepare()
        await self.people.start("run1", ["seq", [["step", "quick", "a", 0, 0], self._write, ["step", "quick", "b", 0, 0]]])
        end = world.loop.now + CALM_MAX
        while world.loop.now < end and not self.done() and not world.broken:
            if not self.living():
                self.servers.append(await world.boot_worker(VARIANTS[0], 20))
            await self._release_held()
            await nap(world, 100_000)
        await self.stop_all()


def run_write(kind: str, way: str, crash_at: Collection[int] = ()) -> Verdict:
    """Run one write of that ability, answered that way, with crashes at the crash points of these numbers, 1 the first."""

    async def one(world: World) -> None:
        world.crash_at.update(crash_at)
        await _judged(OneWrite(world, kind, way))

    return run_world(f"{kind} {way!r} crashed at {sorted(crash_at)}", 1, one)


def every_crash_of(kind: str, way: str, stride: int = 1, first: int = 1) -> Iterator[Verdict]:
    """Yield what comes of a crash at every *stride*-th crash point, from *first* on."""
    point = first
    while True:
        verdict = run_write(kind, way, {point})
        yield verdict
        if verdict.points < point:
            return
        point += stride


async def operating(world: World) -> None:
    """Run one seed."""
    world.rates = draw_rates(world.fork_random())
    await _judged(Operating(world))


async def _judged(scenario: Operating | OneWrite) -> None:
    await scenario.run()
    world = scenario.world
    if not world.broken:
        Judge(scenario).judge()
        for complaint in complaints(scenario):
            world.fail(complaint)


def complaints(scenario: Reviewing) -> Iterator[str]:
    """Yield what does not hold of the operations."""
    assert scenario.world.reader is not None
    rows = {row[0]: row[1:] for row in scenario.world.reader.rows("SELECT id, name, state, body, sends FROM operations")}
    for emission in scenario.provider.emissions:
        if emission.recorded in ("", "queued", "resend") and not emission.process.stalled_until:
            yield f"operation {emission.operation} ({emission.label}) was sent while it was {emission.recorded or 'not recorded'}"
    for operation_id, (name, state, body, sends) in rows.items():
        effects = scenario.provider.effects(operation_id)
        if state not in SETTLED:
            yield f"operation {operation_id} is still {state} long after all faults ended"
        if len(effects) > 1 and not (OPERATIONS[name].spec.idempotent or _excused(effects)):
            yield f"operation {operation_id} ({name}, {sends} sends): {len(effects)} effects: {[(e.at, e.process.name) for e in effects]}"
        yield from _agrees(operation_id, state, effects)
        if body and state == "confirmed" and effects and json.loads(body) != effects[0].label:
            yield f"operation {operation_id}: recorded {body!r}, the provider applied {effects[0].label!r}"


def _excused(effects: list[Emission]) -> bool:
    """Return whether all effects but one are of processes that stood still: nothing can keep those from sending later."""
    return sum(1 for each in effects if each.process.stalled_until or each.process.blocked_until) >= len(effects) - 1


def _agrees(operation_id: str, state: str, effects: list[Emission]) -> Iterator[str]:
    if state == "confirmed" and not effects:
        yield f"operation {operation_id} is confirmed and has no effect"
    late = [each for each in effects if each.process.stalled_until or each.process.blocked_until]
    if state in ("rejected", "not sent", "withdrawn") and len(effects) > len(late):
        yield f"operation {operation_id} is {state} and the provider has applied it"
