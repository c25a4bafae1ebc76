"""One long run, and many that are parked."""

from __future__ import annotations

import asyncio

import romulus

KILOBYTE = "x" * 1_000


@romulus.step
async def kilobyte(number: int) -> str:
    return KILOBYTE


@romulus.workflow
async def long(steps: int) -> int:
    for number in range(steps):
        await kilobyte(number)
    return steps


@romulus.workflow
async def parked(number: int) -> int:
    await asyncio.sleep(86_400)
    return number


app = romulus.App(workflows=[long, parked])
