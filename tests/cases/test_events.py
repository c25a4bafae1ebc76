"""Events and waits: whichever comes first, each wait gets its own, and what lost a race leaves nothing behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import romulus
from tests.cases.apps.waits import impatient, race, two_waits, waits
from tests.processes.stage import FULL, Stage, on_both_stores

pytestmark = [pytest.mark.process, on_both_stores]
APP = "tests.cases.apps.waits:app"
LOSERS = ("timer", "wait", "crash")


async def test_an_event_sent_just_before_or_after_its_run_starts_or_waits_is_never_lost(stage: Stage) -> None:
    """RB-09: sent before the start, after it, together with it; on two workers."""
    trials, seconds = (500, 1.0) if FULL else (150, 0.2)
    await asyncio.gather(stage.worker(APP), stage.worker(APP))

    async def start(n: int) -> object:
        return await stage.client.start(waits.options(id=f"w{n}"), f"k{n}", seconds)

    async def send(n: int) -> object:
        return await stage.client.send_event("key", f"payload {n}", correlation_id=f"k{n}", event_id=f"e{n}")

    async def trial(n: int) -> str:
        match n % 3:
            case 0:
                await send(n)
                await start(n)
            case 1:
                await start(n)
                await send(n)
            case _:
                await asyncio.gather(start(n), send(n))
        return await stage.client.get(f"w{n}", waits).result(timeout=60)

    assert await asyncio.gather(*(trial(n) for n in range(trials))) == [f"payload {n}" for n in range(trials)]
    events = stage.rows("SELECT e.id, e.state, r.id FROM events e LEFT JOIN runs r ON r.key = e.run")
    assert sorted(events) == sorted((f"e{n}", "consumed", f"w{n}") for n in range(trials))
    stage.whole()


async def test_parallel_waits_get_their_own_answers_in_whatever_order_they_come(stage: Stage) -> None:
    """RB-12: one after the other, in one transaction, and after a crash."""
    worker = await stage.worker(APP)
    runs = [f"{how} {n}" for how in ("single", "together", "crash") for n in range(5)]
    handles = [await stage.client.start(two_waits.options(id=run), run) for run in runs]
    for run in runs:
        await stage.status(run, "waiting")

    async def answer(client: romulus.AsyncClient, how: str) -> None:
        for run in (run for run in runs if run.startswith(how)):
            await client.send_event("answer", f"b of {run}", correlation_id=f"{run}/B")
            await client.send_event("answer", f"a of {run}", correlation_id=f"{run}/A")

    await answer(stage.client, "single")
    async with stage.transaction() as transaction:
        await answer(stage.client.using(transaction), "together")
    for run in runs[:10]:
        await stage.status(run, "succeeded")
    worker.kill()
    await answer(stage.client, "crash")
    await stage.worker(APP)
    assert [await h.result(timeout=30) for h in handles] == [{"A": f"a of {run}", "B": f"b of {run}"} for run in runs]
    stage.whole()


async def test_a_waits_timeout_counts_from_its_start_over_a_crash(stage: Stage) -> None:
    """RS-06."""
    seconds = 20.0 if FULL else 4.0
    worker = await stage.worker(APP)
    handle = await stage.client.start(impatient.options(id="r"), seconds)
    await stage.status("r", "waiting")
    ((deadline,),) = stage.rows("SELECT deadline FROM waits")
    worker.kill()
    await stage.worker(APP)
    assert stage.rows("SELECT deadline FROM waits") == [(deadline,)]
    waited = float(await handle.result(timeout=60))
    (entry,) = await handle.history()
    assert entry.error is not None
    assert waited >= seconds
    assert (await handle.describe()).started_at + timedelta(seconds=waited) == entry.at  # type: ignore[operator]
    assert stage.rows("SELECT started_at FROM generations") == [(deadline - seconds * 1_000_000,)]
    stage.whole()


async def test_the_loser_of_a_race_leaves_nothing_that_keeps_the_ended_run(stage: Stage) -> None:
    """RS-08: the timer loses, the wait loses, the timer loses after a crash."""
    worker = await stage.worker(APP)
    handles = {loser: await stage.client.start(race.options(id=loser), 0.5 if loser == "wait" else 3600) for loser in LOSERS}
    assert await handles["wait"].result(timeout=30) == "timer"
    await stage.status("timer", "waiting")
    await handles["timer"].send_event("key", "won")
    assert await handles["timer"].result(timeout=30) == "won"
    await stage.status("crash", "waiting")
    worker.kill()
    await handles["crash"].send_event("key", "won")
    await stage.worker(APP)
    assert await handles["crash"].result(timeout=30) == "won"

    assert [[entry.kind for entry in await handle.history()] for handle in handles.values()] == [["wait"], ["timer"], ["wait"]]
    assert stage.rows("SELECT count(*) FROM waits") == [(0,)]
    assert set(stage.rows("SELECT wake_at, queue_at, owner FROM runs")) == {(None, None, None)}
    late = [await handle.send_event("key", "late") for handle in handles.values()]
    ended = [await handle.describe() for handle in handles.values()]
    other = await stage.client.start(race.options(id="other"), 0.01)  # the worker is alive and has nothing left to do for them
    await other.result(timeout=30)
    assert [await handle.describe() for handle in handles.values()] == ended
    assert {row for receipt in late for row in stage.rows("SELECT state, run FROM events WHERE id = ?", receipt.id)} == {
        ("unmatched", None)
    }
