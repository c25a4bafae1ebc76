"""The example CRM as a process of its own, with what it was asked and did in its own SQLite; and one write of each ability at it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pytest

import romulus
from tests.processes.apps.writes import write
from tests.processes.stage import Process, Stage

ABILITIES = ("lookup", "key", "both", "neither")
NOT_ENDED = {"pending", "running", "waiting", "held"}


class Crm:
    """The provider's process, and a look into its file."""

    def __init__(self, stage: Stage) -> None:
        self._path = stage.directory / "crm.db"
        self.process = stage.python("examples.crm.provider", "0", str(self._path))
        self.url = ""

    async def ready(self, stage: Stage) -> None:
        """Wait until it listens, and tell the workers to come where."""
        await stage.until(lambda: "listening on" in self.process.out, "the CRM listens")
        self.url = f"http://127.0.0.1:{self.process.out.split()[-1]}"
        stage.environment["CRM_URL"] = self.url

    async def behave(self, **changes: Any) -> None:
        """Change how it behaves."""
        request = urllib.request.Request(f"{self.url}/behaviour", json.dumps(changes).encode(), method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())

    def effects(self) -> dict[str, int]:
        """Return how often each operation was applied."""
        return dict(self._rows("SELECT key, count(*) FROM effects GROUP BY key"))

    def contacts(self, what: str) -> Counter[str]:
        """Return how often each operation was asked for: "write" or "lookup"."""
        return Counter(key for (key,) in self._rows("SELECT key FROM contacts WHERE what = ?", what))

    def _rows(self, sql: str, *given: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(sql, given).fetchall()


class Writes:
    """One run of each ability, and the person who knows what the CRM has applied."""

    def __init__(self, stage: Stage, crm: Crm, abilities: Iterable[str] = ABILITIES) -> None:
        self.stage, self.crm, self.abilities = stage, crm, tuple(abilities)
        self.app = romulus.App(stage.url, workflows=[write])
        self.resolved = 0

    async def start(self) -> None:
        """Start them."""
        for ability in self.abilities:
            await self.stage.client.start(write.options(id=ability), ability)

    async def operations(self) -> dict[str, Any]:
        """Return the operation of each run that has one."""
        return {each.run_id: each for each in await self.stage.client.operations()}

    async def until(self, *states: str, of: Iterable[str] | None = None) -> None:
        """Wait until the operation of each of those runs has one of the states."""
        wanted = set(self.abilities if of is None else of)
        while {run for run, each in (await self.operations()).items() if each.state in states} < wanted:
            await asyncio.sleep(0.02)

    async def finish(self) -> dict[str, str]:
        """Wait until every run has ended, saying the truth of whatever is held; return the results."""
        async with romulus.AsyncClient(self.app) as reviewer:
            while {(await self.stage.client.get(each).describe()).status for each in self.abilities} & NOT_ENDED:
                for each in await self.stage.client.operations(state="held"):
                    await self._resolve(reviewer, each)
                await asyncio.sleep(0.02)
        return {each: await self.stage.client.get(each).result(timeout=30) for each in self.abilities}

    async def _resolve(self, reviewer: romulus.AsyncClient, held: Any) -> None:
        """Resolve one that is held; its run says so, and why. The late success of its own send may come before the reviewer."""
        run = await self.stage.status(held.run_id, "held", "succeeded")
        if run.status == "held":
            assert f"operation {held.name!r} (ID {held.id}) was sent" in (run.hold_reason or "")
        applied = held.id in self.crm.effects()
        answer: Any = romulus.Applied(held.run_id) if applied else romulus.NotApplied()
        try:
            await reviewer.resolve_operation(held.id, answer, reason="looked at the CRM", reviewer="ada")
        except romulus.OperationConflict as late:
            assert "is confirmed" in str(late)
        else:
            self.resolved += 1

    async def one_effect_each(self) -> None:
        """Require the end of the story: every run has its result, of every operation there is exactly one effect under its own ID."""
        assert await self.finish() == {each: f"{each} has pro" for each in self.abilities}
        operations = await self.operations()
        assert {each.state for each in operations.values()} == {"confirmed"}
        effects = self.crm.effects()
        assert effects == {each.id: 1 for each in operations.values()}, {run: effects.get(each.id) for run, each in operations.items()}
        assert self.crm.contacts("write").keys() == {each.id for each in operations.values()}


@pytest.fixture
async def crm(stage: Stage) -> Crm:
    """The CRM; it ends with the stage."""
    made = Crm(stage)
    await made.ready(stage)
    return made


async def frozen(stage: Stage, writes: Writes, app: str, *options: str) -> Process:
    """Return a worker frozen between its last checks and its sends, beside another that takes over from it."""
    second = await stage.worker(app, *options)
    await stage.freeze(second)
    stage.shut("send")
    first = await stage.worker(app, *options)
    await writes.start()
    await stage.seen("send", len(writes.abilities))
    await stage.freeze(first)
    stage.unshut("send")
    second.thaw()
    return first


async def kinds(stage: Stage, operation_id: str) -> list[str]:
    """Return what an operation's history has."""
    return [line.kind for line in (await stage.client.operation(operation_id)).history]
