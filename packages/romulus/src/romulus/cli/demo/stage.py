"""What the acts of the demo play on: a store, the effects file, worker processes, a narrator, and the checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from romulus.cli.output import brief, say
from romulus.client import AsyncClient, JournalEntry
from romulus.core.errors import RomulusError

from .processes import WorkerProcess
from .shop import EFFECTS_VARIABLE

PATIENCE_S = 60.0
LOOK_S = 0.02


class DemoFailed(RomulusError):
    """The demo could not be played to its end, or a check did not hold."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of the effects file."""

    what: str  # begin | end
    run: str
    step: str
    seq: int
    attempt: int
    fence: int
    pid: int


class Stage:
    """The demo's directory and everything in it."""

    def __init__(self, directory: Path, client: AsyncClient, url: str) -> None:
        self.directory, self.client = directory, client
        self._effects = directory / "effects.jsonl"
        self._effects.touch()
        self.environment = {"ROMULUS_STORE": url, EFFECTS_VARIABLE: str(self._effects)}
        self._workers: list[WorkerProcess] = []
        self._shown: dict[str, int] = {}  # run ID → entries told so far
        self.failed: list[str] = []  # checks that did not hold

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.close()

    def worker(self) -> WorkerProcess:
        """Start another worker process."""
        worker = WorkerProcess(f"worker {len(self._workers) + 1}", self.directory, self.environment)
        self._workers.append(worker)
        say(f"    {worker.name} started, pid {worker.pid}")
        return worker

    def effects(self) -> list[Effect]:
        """Return what step bodies have written so far."""
        lines = self._effects.read_text(encoding="utf-8").split("\n")[:-1]
        return [Effect(**json.loads(line)) for line in lines]

    def under_way(self) -> list[Effect]:
        """Return the attempts whose bodies have begun and not ended."""
        effects = self.effects()
        ended = {(e.run, e.seq, e.attempt, e.pid) for e in effects if e.what == "end"}
        return [e for e in effects if e.what == "begin" and (e.run, e.seq, e.attempt, e.pid) not in ended]

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
        """Wait for *condition*.

        Raises:
            DemoFailed: it did not come true in time.
        """
        try:
            async with asyncio.timeout(patience_s):
                while not await condition():  # noqa: ASYNC110 - files and other processes tell nobody
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise DemoFailed(f"waited {patience_s:g} s in vain until {what}; the workers' logs are in {self.directory}") from None

    async def tell(self, run: str) -> list[JournalEntry]:
        """Show what the record of *run* has got since last told; return all of it."""
        entries = await self.client.get(run).history()
        for entry in entries[self._shown.get(run, 0) :]:
            say(f"    {run}  recorded {entry.position:2}: {described(entry)}")
        self._shown[run] = len(entries)
        return entries

    def check(self, holds: bool, claim: str) -> None:
        """Show whether *claim* holds."""
        say(f"  [{'ok' if holds else 'FAILED'}] {claim}")
        if not holds:
            self.failed.append(claim)


def described(entry: JournalEntry) -> str:
    """Return an entry in one line."""
    if entry.kind == "timer":
        return "timer fired"
    outcome = f"failed: {entry.error}" if entry.error is not None else brief(entry.value)
    return f"{entry.kind} {entry.name} #{entry.seq}, attempt {entry.attempt} → {outcome}"
