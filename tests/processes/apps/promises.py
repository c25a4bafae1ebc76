"""Workflows that the promises are tried on: each step notes what it was, and for whom."""

from __future__ import annotations

import asyncio
import json
import os

import apsw

import romulus
from romulus import Retry
from tests.processes.effects import directory, gate, gate_blocking, note


def recorded() -> bool:
    """Return whether the store's file says, to anybody who asks now, that this very attempt is under way."""
    attempt = romulus.current_attempt()
    connection = apsw.Connection(str(directory() / "romulus.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(10_000)
    try:
        ((armed,),) = connection.execute("SELECT armed FROM runs WHERE id = ?", (attempt.run_id,)).fetchall()
    finally:
        connection.close()
    return (attempt.seq, attempt.number) in {(seq, number) for seq, number, *_ in json.loads(str(armed))}


def told(number: int) -> int:
    note("body", recorded=recorded())
    if romulus.current_attempt().number < number:
        raise LookupError("again")
    return number


@romulus.step(retry=Retry(max_attempts=3, initial=0.01))
async def at_once(number: int) -> int:
    return told(number)


@romulus.step(retry=Retry(max_attempts=3, initial=0.01))
async def suspending(number: int) -> int:
    await asyncio.sleep(0)
    return told(number)


@romulus.step(retry=Retry(max_attempts=3, initial=0.01))
def threaded(number: int) -> int:
    return told(number)


@romulus.workflow
async def bodies(width: int) -> int:
    """Steps of every kind, some that fail before they succeed, more at once than there are slots."""
    calls = [call(1 + n % 3) for n in range(width) for call in (at_once, suspending, threaded.aio)]
    return sum(await asyncio.gather(*calls))


@romulus.step
async def link(number: int) -> int:
    note("link", number=number)
    await asyncio.sleep(0.002)
    return number


@romulus.step
def link_thread(number: int) -> int:
    note("link", number=number)
    return number


@romulus.workflow
async def links(count: int) -> int:
    """A chain with a rest and a fan in it."""
    total = 0
    for number in range(count):
        total += await (link_thread.aio(number) if number % 3 == 2 else link(number))
    await asyncio.sleep(0.05)
    return total + sum(await asyncio.gather(*(link(count + number) for number in range(3))))


@romulus.workflow
async def fan(width: int) -> int:
    """Many steps at once, more than there are slots."""
    return sum(await asyncio.gather(*(link(number) for number in range(width))))


@romulus.step
async def held_up(name: str) -> str:
    note("begin", loop=True)
    gate_blocking(name)
    return name


@romulus.workflow
async def blocked(name: str) -> str:
    return await held_up(name)


@romulus.workflow
async def listens(key: str) -> list[str]:
    """Consume two events of the same name, one after the other."""
    events = [await romulus.wait_for_event("said", correlation_id=key, type=str) for _ in range(2)]
    return [event.payload for event in events]


@romulus.step
async def drawn(now: str, uuid: str, numbers: list[float]) -> str:
    note("drawn", values=[now, uuid, numbers])
    await gate(f"drawn-{romulus.current_attempt().seq}-{romulus.current_attempt().number}")
    return str(os.getpid())


@romulus.workflow
async def draws(rounds: int) -> list[tuple[str, str, list[float]]]:
    """Draw the time, an ID and numbers before each step, which records them by its arguments."""
    found: list[tuple[str, str, list[float]]] = []
    for _ in range(rounds):
        rng = romulus.rng()
        drawing = romulus.now().isoformat(), str(romulus.uuid4()), [rng.random(), rng.gauss(0, 1)]
        found.append(drawing)
        await drawn(*drawing)
    return found


app = romulus.App(workflows=[bodies, links, fan, blocked, listens, draws])
