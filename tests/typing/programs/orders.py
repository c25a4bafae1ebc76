"""Order fulfilment: fan-out, both colours of step, a saga, children, a client."""
# ruff: noqa: F821 - reveal_type is for type checkers

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import romulus


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Order:
    id: str
    lines: list[Line]


class OutOfStock(Exception): ...


@romulus.step(retry=romulus.Retry(max_attempts=5, non_retryable=(OutOfStock,)), timeout=timedelta(seconds=10))
async def load_order(order_id: str) -> Order:
    return Order(order_id, [])


@romulus.step
async def reserve(line: Line, *, warehouse: str = "A") -> str:
    return line.sku


@romulus.step
async def unreserve(reservation: str) -> None: ...


@romulus.step()
def render_pdf(order: Order) -> bytes:
    return b""


@romulus.workflow
async def ship(order_id: str) -> str:
    await asyncio.sleep(3600)
    return "tracking"


@romulus.workflow(version="1")
async def fulfil(order_id: str) -> str:
    order = await load_order(order_id)
    async with romulus.saga() as saga:
        reservations = await asyncio.gather(*(reserve(line) for line in order.lines))
        for r in reservations:
            saga.add(unreserve, r)
        saga.add(unreserve, 7)  # refused: arg-type reportArgumentType
    order2, pdf = await asyncio.gather(load_order.options(name="again")(order_id), render_pdf.aio(order))
    reveal_type((reservations, order2, pdf))  # reveals: tuple[list[str], Order, bytes]
    async with asyncio.TaskGroup() as tg:
        t = tg.create_task(reserve(Line("x", 1), warehouse="B"))
    reveal_type(t.result())  # reveals: str
    await reserve(Line("x", 1), warehuose="B")  # refused: call-arg reportCallIssue
    await load_order(7)  # refused: arg-type reportArgumentType
    child = await romulus.start(ship.options(id=f"ship-{order_id}", parent_close="abandon"), order_id)
    reveal_type(child)  # reveals: ChildHandle[str]
    reveal_type(await child.result())  # reveals: str
    reveal_type(await child)  # reveals: str
    reveal_type(await ship(order_id))  # reveals: str
    await ship(order_id, 2)  # refused: call-arg reportCallIssue
    await romulus.start(ship, 7)  # refused: arg-type reportArgumentType
    ship.options(parent_close="ignore")  # refused: arg-type reportArgumentType
    romulus.set_attributes(stage="shipped", parcels=2, late=False)
    romulus.set_attributes(weight=1.5)  # refused: arg-type reportArgumentType
    return order2.id


app = romulus.App(workflows=[fulfil, ship])


async def main() -> None:
    async with app.worker(), romulus.AsyncClient(app) as client:
        h = await client.start(fulfil.options(id="o-1"), "1")
        reveal_type(h)  # reveals: AsyncHandle[str]
        reveal_type(await h.result(timeout=30))  # reveals: str
        reveal_type(await client.get("o-1", fulfil).result())  # reveals: str
        reveal_type(await client.get("o-1").result())  # reveals: Any
        reveal_type(await h.cancel())  # mypy: Literal['accepted'] | Literal['already_terminal']  # pyright: Literal['accepted', 'already_terminal']
        reveal_type((await h.describe()).status)  # reveals: RunStatus
        reveal_type(await client.runs(status=romulus.RunStatus.HELD))  # reveals: Page[RunDescription]
        await client.start(fulfil, 1)  # refused: arg-type reportArgumentType
        await client.start(fulfil, "1", id="o-1")  # refused: call-arg reportCallIssue
