"""A workflow whose middle step is worked by a pool."""

from __future__ import annotations

import romulus
from tests.processes.effects import gate, note


@romulus.step
async def prepare(number: int) -> int:
    note("prepared")
    return number + 1


@romulus.step(pool="gpu")
async def train(number: int) -> int:
    note("training")
    await gate("training")
    note("trained")
    return number * 10


@romulus.step(pool="gpu", retry=romulus.Retry(max_attempts=1))
async def train_once(number: int) -> int:
    note("training")
    await gate("training")
    return number * 10


@romulus.workflow
async def trained(number: int) -> int:
    return await prepare(await train(await prepare(number)))


@romulus.workflow
async def trained_once(number: int) -> int:
    return await train_once(number)


app = romulus.App(workflows=[trained, trained_once])
