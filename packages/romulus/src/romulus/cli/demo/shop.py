"""The demo's App, as a user would write it: orders are priced, charged, packed line by line, labelled after a rest, announced."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import romulus

from .writes import register

AUDIT_S = 1.0
EFFECTS_VARIABLE = "ROMULUS_DEMO_EFFECTS"  # the file that step bodies append to


@dataclass
class Line:
    """One position of an order."""

    sku: str
    count: int
    cents: int


@dataclass
class Order:
    """What a customer ordered."""

    id: str
    customer: str
    lines: list[Line]


@dataclass
class Receipt:
    """What became of it."""

    order: str
    cents: int
    payment: str
    parcels: list[str]
    label: str


class Effects:
    """A file outside the store that every step body writes to as it begins and ends: what really happened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str) -> None:
        """Append one line; it survives the process."""
        attempt = romulus.current_attempt()
        line: dict[str, Any] = {
            "what": what, "run": attempt.run_id, "step": attempt.step, "seq": attempt.seq, "attempt": attempt.number,
            "fence": attempt.fence, "pid": os.getpid(),
        }  # fmt: skip
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@romulus.resource
async def effects() -> AsyncIterator[Effects]:
    """Open the effects file of this demo."""
    yield Effects(Path(os.environ[EFFECTS_VARIABLE]))


async def work(seconds: float) -> None:
    """Take a while, as a real call to a bank or a warehouse would."""
    effects.get().note("begin")
    await asyncio.sleep(seconds)
    effects.get().note("end")


@romulus.step
async def price(order: Order) -> int:
    """Return what the order costs, in cents."""
    await work(0.1)
    return sum(line.cents * line.count for line in order.lines)


@romulus.step
async def charge(order_id: str, cents: int) -> str:
    """Take the money."""
    await work(0.3)
    return f"payment-{order_id}-{cents}"


@romulus.step
async def pack(order_id: str, line: Line, number: int) -> str:
    """Pack one line; the later ones take longer."""
    await work(0.3 * (number + 1))
    return f"{order_id}/{number + 1}: {line.count} × {line.sku}"


@romulus.step
async def print_label(order_id: str, parcels: list[str]) -> str:
    """Print the label for all parcels."""
    await work(1.0)
    return f"label-{order_id}-{len(parcels)}"


@romulus.step
async def announce(customer: str, label: str) -> None:
    """Tell the customer."""
    await work(0.1)


@romulus.step
async def audit(order_id: str, cents: int) -> str:
    """Go through the books: it computes all the time and gives nothing else in its process a turn."""
    effects.get().note("begin")
    until = time.monotonic() + AUDIT_S
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
    return f"books of {order_id} balance at {cents}"


@romulus.workflow(name="demo_audit")
async def close_books(order: Order) -> str:
    """Price an order and audit it."""
    return await audit(order.id, await price(order))


@romulus.workflow(name="demo_order")
async def fulfil(order: Order) -> Receipt:
    """Fulfil one order."""
    cents = await price(order)
    payment = await charge(order.id, cents)
    parcels = await asyncio.gather(*(pack(order.id, line, number) for number, line in enumerate(order.lines)))
    await asyncio.sleep(1)  # a durable timer: it fires whichever worker is there
    label = await print_label(order.id, parcels)
    await announce(order.customer, label)
    return Receipt(order.id, cents, payment, parcels, label)


def orders() -> list[Order]:
    """Read the day's orders."""
    rows = json.loads(Path(__file__).with_name("orders.json").read_text(encoding="utf-8"))
    return [Order(row["id"], row["customer"], [Line(**line) for line in row["lines"]]) for row in rows]


app = romulus.App(workflows=[fulfil, close_books, register], resources=[effects])
