"""Waits, timers, races between them, and steps that are cancelled."""

from __future__ import annotations

import asyncio

import romulus
from romulus import Retry
from tests.processes.effects import note


@romulus.step
async def brief(seconds: float) -> None:
    await asyncio.sleep(seconds)


@romulus.workflow
async def waits(key: str, seconds: float) -> str:
    """Wait for an event after a step."""
    await brief(seconds)
    event = await romulus.wait_for_event("key", correlation_id=key, type=str, timeout=60)
    return event.payload


@romulus.workflow
async def two_waits(key: str) -> dict[str, str]:
    """Wait for two answers at once."""

    async def answer(branch: str) -> str:
        event = await romulus.wait_for_event("answer", correlation_id=f"{key}/{branch}", type=str)
        return event.payload

    a, b = await asyncio.gather(answer("A"), answer("B"))
    return {"A": a, "B": b}


@romulus.workflow
async def impatient(seconds: float) -> str:
    try:
        await romulus.wait_for_event("never", timeout=seconds)
    except romulus.WaitTimeout:
        return (romulus.now() - romulus.current_run().started_at).total_seconds().__repr__()
    return "came"


@romulus.workflow
async def race(seconds: float) -> str:
    """Race a wait against a timer and leave the loser where it is."""
    wait = asyncio.create_task(romulus.wait_for_event("key", type=str))
    timer = asyncio.create_task(asyncio.sleep(seconds))
    done, _ = await asyncio.wait({wait, timer}, return_when=asyncio.FIRST_COMPLETED)
    return wait.result().payload if wait in done else "timer"


@romulus.step
async def finishing(run: str) -> str:
    note("finishing")
    return run


@romulus.workflow
async def finishes(run: str) -> str:
    return await finishing(run)


@romulus.step(retry=Retry(max_attempts=None, initial=600, jitter=0))
async def hopeless() -> None:
    note("attempt")
    raise LookupError("not today")


@romulus.workflow
async def backs_off() -> None:
    await hopeless()


@romulus.workflow
async def sleeps(days: float) -> str:
    await asyncio.sleep(days * 86_400)
    await finishing("awake")
    return "awake"


app = romulus.App(workflows=[waits, two_waits, impatient, race, finishes, backs_off, sleeps])
