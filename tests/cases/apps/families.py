"""Parents and children of the cases."""

from __future__ import annotations

import asyncio

import romulus
from tests.processes.effects import note


@romulus.step
async def worked(label: str) -> str:
    note("worked", label=label)
    return label


@romulus.workflow
async def detached(label: str) -> str:
    return await worked(label)


@romulus.workflow
async def starts_last(label: str) -> str:
    """Start a detached child as the last act."""
    child = await romulus.start(detached.options(parent_close="abandon"), label)
    return child.id


@romulus.workflow
async def awaits(label: str) -> str:
    return await detached(label)


@romulus.workflow
async def lingers(label: str) -> None:
    await romulus.wait_for_event("never")


@romulus.workflow
async def family(size: int) -> None:
    await asyncio.gather(*(lingers(str(n)) for n in range(size)))


app = romulus.App(workflows=[starts_last, awaits, family])
