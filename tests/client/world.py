"""Workflows, an App and small waits that the client's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import romulus
from romulus.authoring.workflow import AnyWorkflow
from romulus.client import AsyncClient, AsyncHandle, RunDescription
from romulus.core.machine import RunStatus

PATIENCE_S = 30.0
FIXED: set[str] = set()  # names of failures that have been repaired
database_url = ""  # of PostgreSQL, where the test runs on it: see conftest


@dataclass
class Parcel:
    """A value with a type of its own."""

    weight: int
    labels: list[str]


@romulus.step
async def add(a: int, b: int) -> int:
    return a + b


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def fragile(name: str) -> str:
    if name not in FIXED:
        raise LookupError(f"{name} is broken")
    return f"{name} works"


@romulus.step(retry=romulus.Retry(max_attempts=None, initial=600, jitter=0))
async def hopeless() -> None:
    raise LookupError("not today")


@romulus.workflow
async def total(a: int, b: int = 2, *, parcel: Parcel | None = None) -> int:
    return await add(a, b) + (parcel.weight if parcel else 0)


@romulus.workflow
async def other(a: int, b: int = 2) -> int:
    return a * b


@romulus.workflow
async def waits_for(name: str) -> int:
    for number in range(3):
        await add(number, 1)
    event = await romulus.wait_for_event(name, type=int)
    return event.payload


@romulus.workflow
async def breaks(name: str) -> str:
    before = await add(1, 1)
    return f"{before} {await fragile(name)}"


@romulus.workflow
async def raises_itself() -> None:
    await add(1, 1)
    if "code" not in FIXED:
        raise KeyError("of its own")


@romulus.workflow
async def backs_off() -> None:
    await hopeless()


@romulus.workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


WORKFLOWS: list[AnyWorkflow[..., Any]] = [total, other, waits_for, breaks, raises_itself, backs_off, stuck]


def app_at(path: Path, workflows: Iterable[AnyWorkflow[..., Any]] = WORKFLOWS, **options: Any) -> romulus.App:
    """Return an App on a store below *path*, or on the PostgreSQL database of the test."""
    return romulus.App(database_url or f"sqlite:///{path / 'runs.db'}", workflows=workflows, **options)


@asynccontextmanager
async def working(app: romulus.App) -> AsyncIterator[AsyncClient]:
    """A worker and a client of *app* in this loop."""
    async with app.worker(), app.client() as client:
        yield client


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for *condition*."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.005)


async def reached(handle: AsyncHandle[Any], *statuses: RunStatus) -> RunDescription:
    """Wait until the run has one of *statuses* and return its description."""

    async def there() -> bool:
        return (await handle.describe()).status in statuses

    await until(there)
    return await handle.describe()
