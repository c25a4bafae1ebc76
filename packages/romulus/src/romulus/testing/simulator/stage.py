"""The stage of a simulated world: its people, its workers, and the calm at the end in which everything must come to its end."""

from __future__ import annotations

import json
from typing import Any

from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import HoldKind
from romulus.worker.settings import SECOND

from .people import People, Started, nap
from .process import ProcessDied, SimProcess
from .world import VARIANTS, World

CALM_MAX = 400 * SECOND  # virtual µs in which everything must come to its end
RELEASED = frozenset({HoldKind.POISON, HoldKind.HUNG})  # holds that a crash, or the program itself, explains
CODE_LOOKS_MAX = 60  # looks at runs held for their code, before it is wrong that no worker with the other code has taken them up


class Stage:
    """What every scenario stands on."""

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.fork_random()
        self.people = People(world)
        self.servers: list[SimProcess] = []
        self.variants: tuple[str, ...] = VARIANTS[:1]  # releases of the code that workers have
        self.pools: tuple[str, ...] = ("default",)  # that those serve which are started once it is calm
        self._leaving: list[Any] = []
        self._patience = CODE_LOOKS_MAX

    # ---- calm ------------------------------------------------------------------------------------

    async def calm_down(self) -> None:
        """End all faults, send what is missing, release what a crash explains, and wait for every run's end."""
        world = self.world
        world.note("calm")
        world.rates.calm()
        world.countdown.clear()
        for variant in self.variants:
            self.servers.append(await world.boot_worker(variant, 20, self.pools))
        while self.people.to_send:
            await self.people.send(*self.people.to_send.pop())
        end = world.loop.now + CALM_MAX
        while world.loop.now < end and not self.done() and not world.broken:
            await self._release_held()
            await self._send_common()
            await nap(world, 500_000)
        if not world.broken:
            await self.stop_all()

    def done(self) -> bool:
        """Return whether every run has ended."""
        self._adopt()
        return all(self.status(run) in TERMINAL for run in self.people.runs.values())

    def _adopt(self) -> None:
        """Get to know the children that runs have started."""
        assert self.world.reader is not None
        sql = "SELECT r.id, g.input FROM runs r JOIN generations g ON g.run = r.key AND g.number = 1 WHERE r.depth > 0"
        for run_id, given in self.world.reader.rows(sql):
            self.people.adopt(run_id, json.loads(json.loads(given)["text"]))

    async def _send_common(self) -> None:
        assert self.world.checks is not None
        if any(wait.name == "common" and wait.event is None for wait in self.world.checks.last.waits.values()):
            await self.people.send_common()

    async def _release_held(self) -> None:
        for run in self.people.runs.values():
            row = self.row(run)
            if row is None or row.status != RunStatus.HELD:
                continue
            if row.hold_kind == HoldKind.CODE and len(self.variants) > 1 and self._patience > 0:
                self._patience -= 1  # a worker with the other code takes it up by itself
                continue
            if row.hold_kind not in RELEASED:
                self.world.fail(f"{run.id}: held without a reason: {row.hold_kind}: {row.hold_reason}")
            await self.people.release(run)

    async def stop_all(self) -> None:
        """Stop every worker as SIGTERM does, and wait for those that are stopping."""
        for process in self.living():
            self._leaving.append(self.world.loop.create_task(self.leave_with(process, SECOND)))
        for leaving in self._leaving:
            await leaving

    async def leave_with(self, process: SimProcess, grace: int) -> None:
        """Stop a worker, letting attempts finish for *grace* µs."""
        worker = self.world.workers[process.pid]
        self.world.note(f"{process.name} is asked to stop")
        try:
            await self.world.call(process, worker.stop(grace))
        except ProcessDied:
            return
        self.world.note(f"{process.name} has stopped")
        await nap(self.world, SECOND)
        if process.alive and worker.engine.slots.used:
            self.world.fail(f"{process.name} has stopped and {worker.engine.slots.used} slots were never given back")
        process.kill()

    # ---- looking -----------------------------------------------------------------------------------

    def living(self) -> list[SimProcess]:
        """Return the worker processes that live."""
        self.servers = [process for process in self.servers if process.alive]
        return self.servers

    def any_server(self) -> SimProcess | None:
        """Return one of them, None if there is none."""
        living = self.living()
        return self.random.choice(living) if living else None

    def any_run(self) -> Started | None:
        """Return a run that is there, None if there is none."""
        self._adopt()
        known = [run for run in self.people.runs.values() if self.row(run) is not None]
        return self.random.choice(known) if known else None

    def row(self, run: Started) -> Any:
        """Return the row of a run as it was last seen."""
        assert self.world.checks is not None
        return next((row for row in self.world.checks.last.runs.values() if row.id == run.id), None)

    def status(self, run: Started) -> str:
        """Return where a run stands."""
        row = self.row(run)
        return row.status if row is not None else "absent"

    def position(self, run: Started) -> int:
        """Return how many entries a run has."""
        row = self.row(run)
        return row.position if row is not None else 0
