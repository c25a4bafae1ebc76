"""Cancelling: the reply tells how it ends (RB-14), also during a retry's back-off (RS-10)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import romulus
from romulus import RunStatus
from romulus.client import AsyncClient

from .world import app_at, backs_off, reached, total, until, waits_for, working

TRIALS = 500
ENDS = {RunStatus.SUCCEEDED, RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.TERMINATED, RunStatus.HELD}


BODIES: list[int] = []  # numbers whose step body has run
BEGUN: dict[int, asyncio.Event] = {}


@romulus.step
async def note(number: int) -> int:
    BODIES.append(number)
    BEGUN.setdefault(number, asyncio.Event()).set()
    for _ in range(20):
        await asyncio.sleep(0)
    return number


@romulus.workflow
async def noted(number: int) -> int:
    return await note(number)


ELSEWHERE: list[AsyncClient] = []


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def cancelling() -> str:
    """End right after the run's cancel was accepted through another connection, which its worker has not been told of yet."""
    await ELSEWHERE[0].get("c").cancel()
    return "paid"


@romulus.workflow
async def cancels_itself() -> str:
    return await cancelling()


async def _raced(client: AsyncClient, number: int, chance: random.Random) -> tuple[str, RunStatus, bool]:
    """Cancel a run at some moment around its end; return the reply, the end, and whether a result is intact."""
    handle = await client.start(noted, number)
    await BEGUN.setdefault(number, asyncio.Event()).wait()
    for _ in range(chance.randrange(60)):
        await asyncio.sleep(0)
    reply = await handle.cancel()
    run = await reached(handle, *ENDS)
    return reply, run.status, run.status is not RunStatus.SUCCEEDED or await handle.result() == number


async def _trials(client: AsyncClient, chance: random.Random) -> set[tuple[str, RunStatus, bool]]:
    outcomes: set[tuple[str, RunStatus, bool]] = set()
    for start in range(0, TRIALS, 50):
        outcomes.update(await asyncio.gather(*(_raced(client, n, chance) for n in range(start, start + 50))))
    return outcomes


async def test_an_accepted_cancel_ends_cancelled_and_an_ended_run_keeps_its_result(tmp_path: Path) -> None:
    BEGUN.clear()
    async with working(app_at(tmp_path, [noted])) as client:
        outcomes = await _trials(client, random.Random(14))

    assert outcomes == {("accepted", RunStatus.CANCELLED, True), ("already_terminal", RunStatus.SUCCEEDED, True)}


async def test_a_step_that_ends_as_a_cancel_is_accepted_is_recorded_and_the_run_ends_cancelled(tmp_path: Path) -> None:
    app = app_at(tmp_path, [cancels_itself])
    async with working(app) as client, AsyncClient(app.source.url) as elsewhere:
        ELSEWHERE[:] = [elsewhere]
        handle = await client.start(cancels_itself.options(id="c"))

        run = await reached(handle, *ENDS)

        assert run.status is RunStatus.CANCELLED
        assert [entry.kind for entry in await handle.history()] == ["step"]  # its code had ended before the cancel could reach it


async def test_a_run_nobody_has_claimed_ends_at_once(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        pending, scheduled = await client.start(total, 1), await client.start(total.options(delay=60), 1)

        assert (await pending.cancel("a"), await scheduled.cancel("b")) == ("accepted", "accepted")

        for handle, reason in ((pending, "a"), (scheduled, "b")):
            run = await handle.describe()
            assert (run.status, run.cancel_reason, run.due) == (RunStatus.CANCELLED, reason, None)
            assert run.finished_at is not None
        assert await pending.cancel() == "already_terminal"


async def test_a_cancel_during_back_off_leaves_no_retry_behind(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(backs_off)

        async def backing_off() -> bool:
            return [command.state for command in (await handle.describe()).pending] == ["backing off"]

        await until(backing_off)
        run = await handle.describe()
        assert (run.pending[0].attempt, run.pending[0].error is not None) == (1, True)
        assert await handle.cancel() == "accepted"

        ended = await reached(handle, *ENDS)
        assert (ended.status, ended.due, list(ended.pending)) == (RunStatus.CANCELLED, None, [])
        assert [entry.kind for entry in await handle.history()] == ["cancel"]


async def test_terminating_twice_is_the_same_as_once(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        handle = await client.start(waits_for, "go")
        await reached(handle, RunStatus.WAITING)
        await handle.terminate("first")
        before = await handle.describe()

        await handle.terminate("second")

        assert await handle.describe() == before
        assert len(await client.waits()) == 0
