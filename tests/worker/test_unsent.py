"""An operation that surely never left, given up before that is recorded: it is withdrawn, and no person is asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.transition import Transition, Verdict
from romulus.worker import Worker
from tests.worker.gates import CALLS, GATE, fresh, noted
from tests.worker.rig import eventually, world

__all__ = ["fresh"]


@romulus.operation(retry=romulus.Retry(max_attempts=3, initial=60))
async def blind(op: romulus.Operation) -> None:
    await GATE.wait()
    CALLS.append("not sent")
    raise romulus.NotSent("connection refused")


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def broken() -> None:
    await GATE.wait()
    CALLS.append("broken")
    raise ValueError("broken")


async def given_up() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            for each in (blind(), broken(), noted("first")):
                group.create_task(each)
    except* ValueError:
        CALLS.append("given up")
    return "given up"


@romulus.workflow
async def gives_up() -> str:
    return await given_up()


@romulus.workflow
async def gives_up_and_hangs() -> None:
    await given_up()
    while True:
        pass


def held_up(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Keep the commit of the outcome of `noted` waiting: say when it has come, and when it may go on."""
    come, may_go = asyncio.Event(), asyncio.Event()
    apply: Callable[[Sequence[Transition]], Awaitable[Sequence[Verdict]]] = worker.store.apply

    async def applied(transitions: Sequence[Transition]) -> Sequence[Verdict]:
        if any(entry.name.endswith("noted") for t in transitions for entry in t.entries):
            come.set()
            await may_go.wait()
        return await apply(transitions)

    monkeypatch.setattr(worker.store, "apply", applied)
    return come, may_go


async def test_what_never_left_and_is_given_up_in_the_same_turn_is_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, gives_up) as here:
        come, may_go = held_up(await here.worker(), monkeypatch)
        handle: Any = await here.client.start(gives_up)
        await come.wait()
        GATE.set()
        await eventually(lambda: {"not sent", "broken"} <= set(CALLS))
        may_go.set()

        assert await handle.result(timeout=20) == "given up"
        assert here.rows("SELECT state, sends, first_sent_at, hold_reason FROM operations") == [("withdrawn", 0, None, "")]
        assert here.rows("SELECT kind FROM evidence") == []


async def test_what_never_left_is_queued_again_where_outcomes_alone_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that gave it up never gave control back, so what it asked for is not recorded; that nothing was sent is."""
    async with world(tmp_path, gives_up_and_hangs) as here:
        come, may_go = held_up(await here.worker(activation_limit=200_000), monkeypatch)
        await here.client.start(gives_up_and_hangs.options(id="hangs"))
        await come.wait()
        GATE.set()
        await eventually(lambda: {"not sent", "broken"} <= set(CALLS))
        may_go.set()

        await here.until("hangs", "held")
        assert here.rows("SELECT state, sends, first_sent_at FROM operations") == [("queued", 0, None)]
