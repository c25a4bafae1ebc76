"""What happens in a seed: a while of disturbance, drawn action by action, then calm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from romulus.core.machine import RunStatus
from romulus.worker.settings import SECOND, WorkerSettings

from .faults import Rates
from .people import nap
from .process import ProcessDied
from .programs import Author
from .stage import Stage
from .world import VARIANTS, World

Action = Callable[[], Coroutine[Any, Any, None]]
LEASE = 4 * SECOND


def draw_rates(random: Random) -> Rates:
    """Return the fault rates of a seed: each kind is absent from most."""

    def rate(most: float) -> float:
        return random.uniform(0, most) if random.random() < 0.4 else 0.0

    return Rates(rate(0.15), rate(0.3), rate(0.9), rate(0.5), probes=rate(0.1))


def draw_settings(random: Random) -> WorkerSettings:
    """Return worker settings with small bounds, so that each is reached."""
    return WorkerSettings(
        lease=LEASE, stall_limit=20 * SECOND, stall_report=3600 * SECOND, activation_limit=3600 * SECOND, grace=2 * SECOND,
        sweep=random.choice((1, 2)) * SECOND, claim_max=random.choice((1, 500)),
        turn_entries_max=random.choice((1, 2, 200)), batch_max=random.choice((1, 2, 500)), cache_max=random.choice((0, 1, 1000)),
        history_chunk=random.choice((1, 3, 2000)), alone_pause=SECOND,
    )  # fmt: skip


class Scenario(Stage):
    """Runs one seed's world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._runs = 0
        self._mood = self.random.randrange(4)
        self.variants = VARIANTS if self.random.random() < 0.25 else VARIANTS[:1]

    async def run(self) -> None:
        """Disturb, calm down, stop."""
        self._choose()
        await self.world.prepare()
        await self._disturb(self.random.randrange(3, 20) * SECOND)
        await self.calm_down()

    def _choose(self) -> None:
        world, random = self.world, self.random
        world.settings = draw_settings(random)
        world.hop_max = random.choice((50, 2_000, 30_000))
        world.namespace_shared = random.random() < 0.6

    # ---- disturbance -----------------------------------------------------------------------------

    async def _disturb(self, duration: int) -> None:
        for _ in range(self.random.randrange(1, 3)):
            await self.start_run()
        for _ in range(self.random.randrange(1, 4)):
            await self.boot()
        end = self.world.loop.now + duration
        while self.world.loop.now < end and not self.world.broken:
            await nap(self.world, self.random.randrange(self.random.choice((20_000, 300_000, 2_000_000))))
            await self._one_of(self.random.choices(list(self._actions()), list(self._actions().values()))[0])

    def _actions(self) -> dict[Action, int]:
        usual: dict[Action, int] = {
            self.start_run: 3, self.boot: 6, self.send: 8, self.crash: 6, self.stall: 3, self.block: 1, self.leave: 2,
            self.cancel: 1, self.terminate: 1, self.release: 2, self.retry: 2, self.fork: 1, self.declare_dead: 1,
            self.outage: 1, self.crash_client: 2, self.set_clock: 1,
        }  # fmt: skip
        return usual | self._temper()

    def _temper(self) -> dict[Action, int]:
        """Return what this seed has more of than others."""
        crashy: dict[Action, int] = {self.crash: 30, self.boot: 30}
        busy: dict[Action, int] = {self.cancel: 12, self.terminate: 3, self.release: 5, self.retry: 6, self.fork: 4}
        frozen: dict[Action, int] = {self.stall: 12, self.block: 4, self.boot: 10}
        moods: tuple[dict[Action, int], ...] = ({}, crashy, busy, frozen)
        return moods[self._mood]

    async def _one_of(self, action: Action) -> None:
        with contextlib.suppress(ProcessDied):
            await action()

    async def start_run(self) -> None:
        """Start a run of a new program."""
        if self._runs < 4:
            self._runs += 1
            author = Author(self.world.fork_random(), f"r{self._runs}.", variants=len(self.variants) > 1)
            leaves = self.random.random() < 0.15
            text = author.leaves() if leaves else author.program()
            await self.people.start(f"run{self._runs}", text, leaves=leaves, **self._options())

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"priority": self.random.choice((0, 0, 0, -2, 3))}
        if self.random.random() < 0.15:
            options["delay"] = self.random.random() * 4
        if self.random.random() < 0.08:
            options["timeout"] = 0.1 + self.random.random() * 10
        return options

    async def boot(self) -> None:
        """Start a worker."""
        if len(self.living()) < 3:
            concurrency = self.random.choice((1, 2, 20))
            self.servers.append(await self.world.boot_worker(self.random.choice(self.variants), concurrency))

    async def send(self) -> None:
        """Send an event: one that is waited for, or one more of it, or a wrong one, or one that any run may take."""
        if self.random.random() < 0.2:
            await self.people.send_common()
        if not self.people.to_send:
            return
        pick = self.random.randrange(len(self.people.to_send))
        run_id, name = self.people.to_send[pick]
        chance = self.random.random()
        if chance < 0.15:
            await self.people.send(run_id, name, event_id=f"wrong {self.random.random()}", value=17)
        elif chance < 0.3:
            await self.people.send(run_id, name, event_id=f"again {self.random.random()}")
        else:
            await self.people.send(run_id, name)
            if self.random.random() < 0.8:
                self.people.to_send.remove((run_id, name))

    async def crash(self) -> None:
        """Let a worker die some crash points from now."""
        if (process := self.any_server()) is not None:
            self.world.countdown[process.pid] = self.random.randrange(self.random.choice((5, 50, 200)))

    async def crash_client(self) -> None:
        """Let the client die some crash points from now."""
        client = await self.people.client()
        self.world.countdown[client.process.pid] = self.random.randrange(12)

    async def stall(self) -> None:
        """Stop a process for a while, perhaps past its lease."""
        if (process := self.any_server()) is not None:
            duration = self.random.choice((50_000, 1_000_000, 3_500_000, 6_000_000, 12_000_000))
            self.world.note(f"{process.name} is stopped for {duration} µs")
            self.world.stalled = True
            process.stop(self.world.loop.now, self.world.loop.now + duration)

    async def block(self) -> None:
        """Block a worker's event loop; its threads run on."""
        if (process := self.any_server()) is not None:
            duration = self.random.choice((1_000_000, 6_000_000, 30_000_000))
            self.world.note(f"{process.name}'s loop is blocked for {duration} µs")
            self.world.stalled = True
            process.block(self.world.loop.now, self.world.loop.now + duration)

    async def leave(self) -> None:
        """Stop a worker as SIGTERM does."""
        if (process := self.any_server()) is not None:
            self.servers.remove(process)
            self._leaving.append(self.world.loop.create_task(self.leave_with(process, self.random.choice((0, 500_000, 3_000_000)))))

    async def cancel(self) -> None:
        """Cancel a run, a held one first."""
        held = [run for run in self.people.runs.values() if self.status(run) == RunStatus.HELD]
        run = held[0] if held and self.random.random() < 0.5 else self.any_run()
        if run is not None:
            await self.people.cancel(run)

    async def terminate(self) -> None:
        """Terminate a run."""
        if (run := self.any_run()) is not None and self.random.random() < 0.5:
            await self.people.terminate(run)

    async def release(self) -> None:
        """Release a held run."""
        for run in self.people.runs.values():
            if self.status(run) == RunStatus.HELD:
                await self.people.release(run)
                return

    async def retry(self) -> None:
        """Retry a run that ended badly."""
        for run in self.people.runs.values():
            if self.status(run) in (RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TERMINATED) and run.retries < 2:
                await self.people.retry(run)
                return

    async def fork(self) -> None:
        """Fork a run somewhere."""
        if (run := self.any_run()) is not None and len(self.people.runs) < 6 and run.forked_from is None:
            await self.people.fork(run, self.random.randrange(self.position(run) + 1))

    async def declare_dead(self) -> None:
        """Mark a worker dead that lives."""
        if (process := self.any_server()) is not None and process.pid in self.world.workers:
            worker_id = self.world.workers[process.pid].id
            self.world.note(f"{worker_id} is declared dead")
            process.declared_dead_at = self.world.loop.now
            await self.people.declare_dead(worker_id)

    async def outage(self) -> None:
        """Let the store be out of reach for a while."""
        before = replace(self.world.rates)
        self.world.rates.unavailable = 0.7
        await nap(self.world, self.random.choice((200_000, 3_000_000)))
        self.world.rates.unavailable = before.unavailable

    async def set_clock(self) -> None:
        """Set the wall clock, as an operator may."""
        if self.random.random() < 0.3:
            assert self.world.checks is not None
            self.world.checks.look_at_clock()
            self.world.set_clock(self.random.randrange(-2_000_000, 2_000_000))
            self.world.note(f"the wall clock is off by {self.world.clock_shift} µs")
