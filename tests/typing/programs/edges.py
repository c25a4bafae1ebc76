"""Misuse and edges: what the decorators make of odd functions, and calls that checkers refuse."""
# ruff: noqa: A002, F821 - reveal_type is for type checkers, `id=` the user's own argument

from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any

import romulus


@romulus.step
def untyped_lib(x: int) -> Any:
    return x


@romulus.step
def returns_awaitable(x: int) -> Awaitable[int]: ...  # type: ignore[empty-body]


class C:
    @staticmethod
    @romulus.step
    async def s(x: int) -> int:
        return x


@romulus.workflow
async def kw(order_id: str, *, id: str = "", store: str = "", connection: int = 0) -> str:
    return order_id


@romulus.workflow(name="kw", version="2", timeout=timedelta(days=1))
def kw_2(order_id: str, *items: int, **more: bool) -> None: ...


@romulus.step(transaction=True)
def write(n: int) -> int:
    return n


@romulus.resource
async def number() -> AsyncIterator[int]:
    yield 1


reveal_type(untyped_lib)  # mypy: Any  # pyright: Step[(x: int), Any]
reveal_type(returns_awaitable)  # reveals: SyncStep[(x: int), Awaitable[int]]
reveal_type(kw.options(id="x"))  # mypy: Workflow[(order_id: str, *, id: str =, store: str =, connection: int =), str]  # pyright: Workflow[(order_id: str, *, id: str = "", store: str = "", connection: int = 0), str]
reveal_type(kw_2)  # reveals: SyncWorkflow[(order_id: str, *items: int, **more: bool), None]
reveal_type(write.options(timeout=None, retry=romulus.Retry(max_attempts=None)))  # reveals: SyncStep[(n: int), int]
reveal_type(number)  # reveals: Resource[int]
reveal_type(romulus.logger)  # reveals: Logger
reveal_type(romulus.current_run)  # reveals: () -> RunInfo
kw.options(order_id="x")  # refused: call-arg reportCallIssue
write.options(retry=3)  # refused: arg-type reportArgumentType
romulus.step(retries=3)  # refused: call-overload reportCallIssue
romulus.Retry(max_attempts="3")  # refused: arg-type reportArgumentType


async def starts(c: romulus.AsyncClient) -> None:
    reveal_type(await C.s(1))  # reveals: int
    reveal_type(await write.aio(1))  # reveals: int
    await c.start(kw.options(id="x"), "1", connection=3, store="a")
    await c.start(kw_2, "1", 2, 3, gift=True)
    await c.start(kw, 1)  # refused: arg-type reportArgumentType
    await romulus.wait_for_event("paid", type=dict[str, int], within=3)  # refused: call-overload reportCallIssue
    reveal_type(await romulus.wait_for_event("paid", type=list[C]))  # reveals: Event[list[C]]
    reveal_type((await romulus.wait_for_event("paid")).received_at)  # reveals: datetime


def begins(c: romulus.Client) -> None:
    reveal_type(c.start(kw_2, "1"))  # reveals: Handle[None]
    c.start(kw_2, "1", "2")  # refused: arg-type reportArgumentType


class Sealed:
    """A codec whose parameters have names of their own."""

    def encode(self, value: bytes) -> bytes:
        return value[::-1]

    def decode(self, stored: bytes) -> bytes:
        return stored[::-1]


romulus.App(workflows=[kw], codec=Sealed())
romulus.App(workflows=[kw], codec=write)  # refused: arg-type reportArgumentType
