"""What people and other systems ask of the engine in a scenario, and what they may expect of it after."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from romulus.core.errors import IllegalTransition, OperationConflict, RunNotFound, StoreUnavailable

from .clients import SimClient
from .model import payload
from .plain import plain
from .process import ProcessDied
from .programs import Node, events
from .workflow import program
from .world import World

TRIES_MAX = 50  # of one request, while the client dies or the file is locked
Ask = Callable[[SimClient], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Started:
    """A run that was asked for."""

    id: str
    text: Node
    cancelled: bool = False  # a cancel was asked for: it may have been accepted
    terminated: bool = False
    disturbed: bool = False  # a person has asked it to end, or to begin again
    releases: int = 0
    retries: int = 0
    forked_from: str | None = None
    limited: bool = False  # it has a timeout of its own


@dataclass(slots=True)
class People:
    """Sends requests through a client process, and again through another when that one dies."""

    world: World
    runs: dict[str, Started] = field(default_factory=dict[str, Started])
    to_send: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # (run ID, event name) still to be sent
    receipts: list[str] = field(default_factory=list[str])  # IDs of events whose receipt was returned
    _common: int = 0
    _client: SimClient | None = None

    async def start(self, run_id: str, text: Node, *, leaves: bool = False, **options: Any) -> None:
        """Start a run, of the `def` workflow where it has *leaves* only."""
        self.runs[run_id] = Started(run_id, text, limited="timeout" in options)
        self.to_send += [(run_id, name) for name in events(text)]
        chosen: Any = plain if leaves else program
        await self.ask(lambda sim: sim.client.start(chosen.options(id=run_id, **options), json.dumps(text)))

    def adopt(self, run_id: str, text: Node) -> None:
        """Look after a child as after a run that was asked for; its parent may have it cancelled or terminated."""
        self.runs.setdefault(run_id, Started(run_id, text, cancelled=True, terminated=True))

    async def send_common(self) -> None:
        """Send an event that any run may take."""
        self._common += 1
        number = self._common
        await self.ask(lambda sim: sim.client.send_event("common", f"common {number}", correlation_id="all", event_id=f"common {number}"))
        self.receipts.append(f"common {number}")

    async def send(self, run_id: str, name: str, *, event_id: str | None = None, value: object = None) -> None:
        """Send an event, whose receipt is kept."""
        known = event_id or f"of {run_id}/{name}/{self.runs[run_id].retries}"
        body = payload(name) if value is None else value
        await self.ask(lambda sim: sim.client.send_event(name, body, correlation_id=run_id, event_id=known))
        self.receipts.append(known)

    async def cancel(self, run: Started) -> None:
        """Ask a run to end."""
        run.cancelled = run.disturbed = True
        await self.ask(lambda sim: sim.client.get(run.id).cancel("no longer wanted"))

    async def terminate(self, run: Started) -> None:
        """Stop a run."""
        run.terminated = run.disturbed = True
        await self.allowed(lambda sim: sim.client.get(run.id).terminate("stop"))

    async def release(self, run: Started) -> None:
        """Let a held run go on."""
        run.releases += 1
        await self.allowed(lambda sim: sim.client.get(run.id).release())

    async def retry(self, run: Started) -> None:
        """Begin a run that ended badly again."""
        run.retries += 1
        run.disturbed = True
        self.to_send += [(run.id, name) for name in events(run.text) if (run.id, name) not in self.to_send]
        await self.allowed(lambda sim: sim.client.get(run.id).retry())

    async def fork(self, run: Started, position: int) -> None:
        """Begin a run with the first entries of another."""

        async def fork(sim: SimClient) -> str:
            return (await sim.client.get(run.id).fork(position)).id

        made = await self.allowed(fork)
        if isinstance(made, str):
            self.runs[made] = Started(made, run.text, forked_from=run.id, limited=run.limited)
            self.to_send += [(made, name) for name in events(run.text)]

    async def declare_dead(self, worker_id: str) -> None:
        """Mark a worker dead."""
        await self.ask(lambda sim: sim.store.mark_dead(worker_id))

    async def allowed(self, ask: Ask) -> Any:
        """Ask for something that the run's state may refuse by then."""
        try:
            return await self.ask(ask)
        except (IllegalTransition, OperationConflict, RunNotFound, ValueError) as error:
            self.world.note(f"refused: {error}")
            return None

    async def ask(self, ask: Ask) -> Any:
        """Ask until somebody answers."""
        for _ in range(TRIES_MAX):
            try:
                client = await self.client()
                return await self.world.call(client.process, ask(client))
            except ProcessDied:
                self.world.note("the client died")
            except StoreUnavailable:
                await nap(self.world, 30_000)
        raise AssertionError(f"{TRIES_MAX} tries of one request failed")

    async def client(self) -> SimClient:
        """Return a client whose process lives."""
        if self._client is None or not self._client.process.alive:
            self._client = await SimClient(self.world).open()
        return self._client


async def nap(world: World, duration: int) -> None:
    """Let *duration* µs of virtual time pass."""
    done = world.loop.create_future()
    world.loop.timer(world.loop.now + duration, done.set_result, (None,))
    await done
