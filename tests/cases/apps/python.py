"""Context variables across colours and threads, a def step past its timeout, and log lines between steps."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

import romulus
from romulus import Retry
from tests.processes.effects import gate, gate_blocking, note

COLOUR: ContextVar[str] = ContextVar("colour", default="none")
LEFT: ContextVar[str] = ContextVar("left", default="nothing")


def look_round(number: int) -> tuple[str, str, str]:
    """Return what is in sight, and leave something behind."""
    found = COLOUR.get(), LEFT.get(), romulus.current_run().id
    LEFT.set(f"{found[2]} {number}")
    COLOUR.set("of a step")
    note("looked", thread=threading.current_thread().name)
    return found


@romulus.step
def look(number: int) -> tuple[str, str, str]:
    return look_round(number)


@romulus.step
async def look_async(number: int) -> tuple[str, str, str]:
    return look_round(number)


@romulus.workflow
async def paints(colour: str, times: int) -> set[tuple[str, str, str]]:
    """Set a colour, have steps of both colours look at it."""
    COLOUR.set(colour)
    assert COLOUR.get()
    found = {await look.aio(number) for number in range(times)}
    return found | {await look_async(0), (COLOUR.get(), LEFT.get(), romulus.current_run().id)}


@romulus.workflow
def paints_blocking(colour: str, times: int) -> set[tuple[str, str, str]]:
    """As `paints`, as a def workflow."""
    COLOUR.set(colour)
    found = {look(number) for number in range(times)}
    return found | {look_async.blocking(0), (COLOUR.get(), LEFT.get(), romulus.current_run().id)}


@romulus.step(timeout=0.3, retry=Retry(max_attempts=2, initial=0.01))
def deaf(stops: bool) -> str:
    """Notice the timeout, say so, and go on until the gate opens."""
    attempt = romulus.current_attempt()
    note("begin", at=time.monotonic())
    if attempt.number == 1:
        while not attempt.cancelled:
            time.sleep(0.005)
        note("told", at=time.monotonic())
        gate_blocking("deaf")
    note("end", at=time.monotonic())
    if stops and attempt.number == 2:
        while not attempt.cancelled:
            time.sleep(0.005)
    return f"attempt {attempt.number}"


@romulus.workflow
async def overruns(stops: bool) -> str:
    try:
        return await deaf.aio(stops)
    except romulus.StepTimeout as error:
        return str(error)


@romulus.step
async def stage_of(number: int) -> int:
    note("begin", number=number)
    await gate(f"stage-{number}-{romulus.current_attempt().number}")
    note("end", number=number)
    return number


@romulus.workflow
async def talks(steps: int) -> int:
    """Log a line before each step and one at the end."""
    for number in range(steps):
        romulus.logger.info("line %d before its step", number)
        await stage_of(number)
    romulus.logger.info("line %d at the end", steps)
    return steps


app = romulus.App(workflows=[paints, paints_blocking, overruns, talks])
