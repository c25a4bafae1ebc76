"""Plain def workflows, Django-style."""
# ruff: noqa: F821 - reveal_type is for type checkers

from datetime import timedelta

import romulus
from romulus import blocking


@romulus.step
def charge(order: int) -> str:
    return "c"


@romulus.step
async def notify(order: int) -> None: ...


@romulus.step
def sub_step(n: int) -> str:
    return str(n)


@romulus.step
async def async_sub_step(n: int) -> bytes:
    return bytes(n)


@romulus.workflow
async def child(order: int) -> int:
    return order


@romulus.workflow
def sub(order: int) -> int:
    return order


@romulus.workflow
def checkout(order: int) -> str:
    c = charge(order)
    notify.blocking(order)
    blocking.sleep(3600)
    e = blocking.wait_for_event("paid", correlation_id=str(order), type=dict[str, int], timeout=timedelta(days=3))
    reveal_type(e.payload)  # reveals: dict[str, int]
    reveal_type(blocking.wait_for_event("paid").payload)  # reveals: Any
    reveal_type(blocking.wait_for_event("paid", type=int | None).payload)  # reveals: int | None
    reveal_type(blocking.map(sub_step, [1, 2]))  # reveals: list[str]
    reveal_type(blocking.map(async_sub_step, [1, 2]))  # reveals: list[bytes]
    blocking.map(sub_step, ["1"])  # refused: arg-type reportArgumentType
    reveal_type(sub(order))  # reveals: int
    reveal_type(blocking.call(child, order))  # reveals: int
    reveal_type(child.blocking(order))  # reveals: int
    reveal_type(blocking.start(child, order).result())  # reveals: int
    reveal_type(blocking.map(child, [order]))  # reveals: list[int]
    blocking.call(child, "1")  # refused: arg-type reportArgumentType
    notify(order)  # refused: unused-coroutine reportUnusedCoroutine
    return c


reveal_type(charge)  # reveals: SyncStep[(order: int), str]
reveal_type(sub)  # reveals: SyncWorkflow[(order: int), int]
reveal_type(charge.fn)  # reveals: (order: int) -> str
reveal_type(charge.aio)  # reveals: (order: int) -> Coroutine[Any, Any, str]
app = romulus.App("postgresql://localhost/db", workflows=[checkout, child, sub])
client = romulus.Client(app)


def view(conn: object, order: int) -> str:
    h = client.using(conn).start(checkout.options(id=f"order-{order}"), order)
    reveal_type(h)  # reveals: Handle[str]
    reveal_type(h.result())  # reveals: str
    return h.id


def webhook(order: int) -> bool:
    return client.send_event("paid", {"ok": 1}, correlation_id=str(order), event_id="e").duplicate
