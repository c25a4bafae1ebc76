"""A nightly load: every table at once, at most four at a time, each a child run that can be looked at, retried and cancelled by itself.

python examples/etl.py                  # today's load; started again on the same day it goes on where it was
romulus runs list --attribute day=2026-11-29
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime

import romulus

TABLES = ["customers", "invoices", "lines", "prices", "stock", "tax"]
AT_ONCE_MAX = 4


class Warehouse:
    """Stands for the connection to a warehouse."""

    async def copy(self, table: str, day: date) -> int:
        """Copy a day of *table* and return its rows."""
        await asyncio.sleep(0.05)
        return len(table) * day.day


@romulus.resource
async def warehouse() -> AsyncIterator[Warehouse]:
    """Open the warehouse for a worker's lifetime."""
    yield Warehouse()


@romulus.step(timeout=600, retry=romulus.Retry(max_attempts=5))
async def copy(table: str, day: date) -> int:
    """Copy one table. It may begin more than once, so a copy replaces what is there for that day."""
    return await warehouse.get().copy(table, day)


@romulus.workflow
async def load_table(table: str, day: date) -> int:
    """Load one table."""
    return await copy(table, day)


@romulus.workflow
async def nightly(day: date, tables: list[str]) -> dict[str, int]:
    """Load *tables*; one that fails does not stop the others."""
    romulus.set_attributes(day=day.isoformat())
    places = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(table: str) -> int:
        async with places:
            try:
                return await load_table.options(id=f"{table}-{day}")(table, day)
            except romulus.ChildFailed as error:
                romulus.logger.error("%s", error)
                return -1

    counts = await asyncio.gather(*(one(table) for table in tables))
    return dict(zip(tables, counts, strict=True))


app = romulus.App(workflows=[nightly, load_table], resources=[warehouse])

if __name__ == "__main__":
    today = date.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else datetime.now(UTC).date()
    for name, rows in app.run(nightly.options(id=f"nightly-{today}"), today, TABLES).items():
        print(f"{name:12} {rows:6} rows")
