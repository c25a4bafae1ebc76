"""Workflows that are started wrongly, or hand on what cannot be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import romulus
from tests.processes.effects import gate, note


@dataclass
class Order:
    id: int
    lines: list[str]


class Handle:
    """A thing of this process."""


@romulus.step
async def pack(order: Order) -> int:
    note("pack")
    return len(order.lines)


@romulus.step
async def keep(thing: Any) -> None:
    note("keep")


@romulus.step
async def opened() -> Any:
    note("opened")
    return Handle()


@romulus.step
async def large(size: int) -> str:
    note("large")
    return "x" * size


@romulus.step
async def waits_at(name: str) -> str:
    note("begin")
    await gate(name)
    note("end")
    return name


@romulus.workflow
async def packs(order: Order) -> int:
    return await pack(order)


@romulus.workflow
async def hands_on() -> None:
    await keep(Handle())


@romulus.workflow
async def takes() -> None:
    await opened()


@romulus.workflow
async def returns() -> Any:
    return Handle()


@romulus.workflow
async def grows(size: int) -> int:
    return len(await large(size))


@romulus.workflow
async def stands(name: str) -> str:
    return await waits_at(name)


app = romulus.App(workflows=[packs, hands_on, takes, returns, grows, stands])
