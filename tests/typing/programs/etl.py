"""Nightly ETL: a resource, a pool, a bounded fan-out of children."""
# ruff: noqa: F821 - reveal_type is for type checkers

import asyncio
from collections.abc import AsyncIterator
from datetime import date

import romulus


class Warehouse:
    async def copy(self, table: str, day: date) -> int:
        return 1


@romulus.resource
async def warehouse() -> AsyncIterator[Warehouse]:
    yield Warehouse()


@romulus.step(pool="heavy", heartbeat_timeout=30)
async def copy(table: str, day: date) -> int:
    reveal_type(warehouse.get())  # reveals: Warehouse
    reveal_type(romulus.current_attempt().number)  # reveals: int
    return await warehouse.get().copy(table, day)


@romulus.workflow
async def load_table(table: str, day: date) -> int:
    return await copy(table, day)


@romulus.workflow
async def nightly(day: date, tables: list[str]) -> dict[str, int]:
    limit = asyncio.Semaphore(20)

    async def one(t: str) -> int:
        async with limit:
            return await load_table.options(id=f"{t}-{day}")(t, day)

    counts = await asyncio.gather(*map(one, tables))
    reveal_type(counts)  # reveals: list[int]
    reveal_type((romulus.now(), romulus.uuid4(), romulus.rng(), romulus.patched("fast")))  # reveals: tuple[datetime, UUID, Random, bool]
    if not counts:
        romulus.continue_as_new(nightly, day, tables)
    if len(counts) == 1:
        romulus.continue_as_new(nightly, day)  # refused: call-arg reportCallIssue
    return dict(zip(tables, counts, strict=True))


app = romulus.App(workflows=[nightly, load_table], steps=[copy], resources=[warehouse])
if __name__ == "__main__":
    reveal_type(app.run(nightly.options(id=f"etl-{date.today()}"), date.today(), ["a", "b"]))  # reveals: dict[str, int]
    romulus.run(nightly, date.today(), ["a"], store="x")  # refused: call-arg reportCallIssue
