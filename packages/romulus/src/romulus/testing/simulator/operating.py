"""Seeds whose programs write to a provider: the scenario, its reviewer, and what must hold of every operation at the end (promise 6)."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from random import Random
from typing import Any, Final, LiteralString

from romulus.core.errors import OperationConflict
from romulus.core.machine import RunStatus
from romulus.core.operations import SETTLED, Applied, GiveUp, NotApplied
from romulus.core.record import HoldKind
from romulus.worker.settings import SECOND

from .accounts import Accounts
from .host import EPOCH
from .judge import Judge
from .programs import Author
from .provider import Provider, Standing, provide, with_writes
from .scenario import Action, Scenario, draw_rates
from .seed import Verdict, run_world
from .stage import Stage
from .steps import BOTH
from .world import World

SURE_AFTER: Final = 30 * SECOND  # virtual µs after which nothing that was begun can still arrive


class Reviewing(Stage):
    """A stage with a provider, and a person who settles what only a person can."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pools = BOTH
        wall = lambda: EPOCH + world.loop.now + world.clock_shift  # noqa: E731
        self.provider = Provider(lambda: world.loop.now, wall, lambda: world.loop.current, self.look)
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
        sent = [each.at for each in self.provider.beginnings if each.operation == operation_id]
        return max(sent, default=0) + SURE_AFTER < self.world.loop.now and not any(p.stalled_until > 0 for p in self.living())

    def done(self) -> bool:
        """Return whether every run has ended, children too, and every operation is settled."""
        return super().done() and all(state in SETTLED for _, state, _ in self.operations())

    def operations(self) -> list[tuple[str, str, int]]:
        """Return (ID, state, last change) of every operation that is stored."""
        return [(row[0], row[1], row[2]) for row in self.stored("SELECT id, state, updated_at FROM operations")]

    def look(self, operation_id: str) -> Standing:
        """Return how an operation stands in the store."""
        found = self.stored("SELECT id, state, fence, may_leave_until FROM operations")
        return next((Standing(*row[1:]) for row in found if row[0] == operation_id), Standing())

    def stored(self, sql: LiteralString) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        assert self.world.reader is not None
        return self.world.reader.rows(sql)


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

    async def boot(self) -> None:
        """Start a worker; some serve the pool only, some the runs only."""
        if len(self.living()) < 3:
            pools = self.random.choice((BOTH, BOTH, BOTH[:1], BOTH[1:]))
            self.servers.append(await self.world.boot_worker(self.random.choice(self.variants), self.random.choice((1, 2, 20)), pools))

    def _actions(self) -> dict[Action, int]:
        return super()._actions() | {self.review: 3}


def run_operating(seed: int) -> Verdict:
    """Run a random scenario with operations; the same seed always runs the same."""
    return run_world(f"operations seed {seed}", seed, operating)


async def operating(world: World) -> None:
    """Run one seed."""
    world.rates = draw_rates(world.fork_random())
    world.frozen_sends = draw_frozen(world.fork_random())
    scenario = Operating(world)
    await judged(scenario, scenario.run())


async def judged(scenario: Reviewing, run: Coroutine[Any, Any, None]) -> None:
    """Let a scenario *run* to its end and note everything that does not hold."""
    await run
    world = scenario.world
    if not world.broken:
        Judge(scenario).judge()
        rows = {row[0]: row[1:] for row in scenario.stored("SELECT id, name, state, body, sends FROM operations")}
        for complaint in Accounts(world, scenario.provider, rows).complaints():
            world.fail(complaint)


def draw_frozen(random: Random) -> float:
    """Return the share of sends before which the process is stopped: none in most seeds."""
    return random.uniform(0, 0.6) if random.random() < 0.3 else 0.0
