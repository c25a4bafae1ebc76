"""Chains and fans of steps that note what they do and wait at gates."""

from __future__ import annotations

import asyncio

import romulus
from romulus import Retry
from tests.processes.effects import die, gate, gate_blocking, gate_computing, note

QUICK = Retry(max_attempts=3, initial=0.01, jitter=0)


@romulus.step
async def work(number: int) -> int:
    note("work", number=number)
    return number


@romulus.step(retry=QUICK)
async def gated(name: str) -> str:
    note("begin")
    await gate(name)
    note("end")
    return name


@romulus.step(retry=QUICK)
def gated_thread(name: str) -> str:
    note("begin")
    gate_blocking(name)
    note("end")
    return name


@romulus.step(retry=QUICK)
async def blocking(name: str, computing: bool) -> str:
    note("begin")
    gate_computing(name) if computing else gate_blocking(name)
    note("end")
    return name


@romulus.workflow
async def chain(name: str, kind: str) -> list[str]:
    """Three steps in a row, the first at a gate."""
    if kind == "thread":
        first = await gated_thread.aio(name)
    elif kind == "async":
        first = await gated(name)
    else:
        first = await blocking(name, kind == "computing")
    return [first, str(await work(2)), str(await work(3))]


@romulus.step
async def branch(run: int, number: int) -> int:
    note("branch", number=number)
    await asyncio.sleep(0)
    return run * 10 + number


@romulus.workflow
async def barrier(run: int, width: int) -> int:
    """Branches that end together, joined."""
    return sum(await asyncio.gather(*(branch(run, number) for number in range(width))))


@romulus.step(retry=Retry(max_attempts=3, initial=0.01, jitter=0))
async def killed(where: str) -> str:
    """Fail at attempt 1, be killed at attempt 2, end later."""
    number = romulus.current_attempt().number
    note("begin")
    if number == 1:
        raise LookupError("the first failure")
    if number == 2:
        if where == "during":
            await gate(f"never-{romulus.current_attempt().run_id}")
        die()
    if where == "fails":
        raise LookupError(f"failure of attempt {number}")
    note("end")
    return f"attempt {number}"


@romulus.step(retry=Retry(max_attempts=3, initial=0.01, jitter=0))
def killed_thread(where: str) -> str:
    number = romulus.current_attempt().number
    note("begin")
    if number == 1:
        raise LookupError("the first failure")
    if number == 2:
        die()
    note("end")
    return f"attempt {number}"


@romulus.workflow
async def survives(where: str) -> str:
    if where == "thread":
        return await killed_thread.aio(where)
    return await killed(where)


@romulus.step(retry=Retry(max_attempts=1))
async def only_once(where: str) -> str:
    note("begin")
    if romulus.current_attempt().number == 1 and where == "killed":
        die()
    if where == "fails":
        raise LookupError("once is enough")
    return "done"


@romulus.workflow
async def careful(where: str) -> str:
    return await only_once(where)


@romulus.step(retry=Retry(max_attempts=None, initial=0.001, max_delay=0.002))
async def stubborn(until: int) -> int:
    number = romulus.current_attempt().number
    note("begin")
    if number < until:
        raise LookupError(str(number))
    return number


@romulus.workflow
async def patient(until: int) -> int:
    return await stubborn(until)


@romulus.step(retry=Retry(max_attempts=None, initial=0.01))
async def deadly() -> None:
    note("deadly")
    die()


@romulus.workflow
async def poison() -> str:
    """End every process that works on it."""
    await work(1)
    await deadly()
    return "survived"


@romulus.step(transaction=True, retry=QUICK)
async def book(order: str, where: str) -> str:
    """Write to a table of our own in SQLite beside the outcome; die in attempt 1, after the write."""
    note("book")
    romulus.current_attempt().connection.execute("INSERT INTO bookings VALUES (?)", (order,))
    if where == "killed" and romulus.current_attempt().number == 1:
        die()
    return order


@romulus.workflow
async def books(order: str, where: str) -> list[str]:
    return [await book(order, where), await gated(order), await book(order + " again", "no")]


app = romulus.App(workflows=[chain, barrier, survives, careful, patient, poison, books])
