"""A transactional step whose run is dropped at its end: its transaction ends too, with everything in it or nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import romulus
from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.store.contract import BatchRejected, Transaction
from romulus.worker import Worker
from tests.worker.rig import eventually, world

BEGUN: list[tuple[str, int]] = []  # order, number of the attempt whose body has begun


@pytest.fixture(autouse=True)
def _fresh() -> None:
    BEGUN.clear()


@romulus.step(transaction=True)
async def book(order: str) -> str:
    attempt = romulus.current_attempt()
    BEGUN.append((order, attempt.number))
    await book_in(attempt.connection, order)
    return order


async def book_in(connection: Any, order: str) -> None:
    if isinstance(connection, apsw.Connection):
        connection.execute("INSERT INTO bookings VALUES (?)", (order,))
    else:
        await connection.execute("INSERT INTO bookings VALUES ($1)", order)


@romulus.workflow
async def booking(order: str) -> list[str]:
    return [await book(order), await book(order + "2")]


@romulus.step(transaction=True, retry=romulus.Retry(max_attempts=2, initial=0.01))
async def book_twice(order: str) -> None:
    await book.fn(order)


@romulus.workflow
async def told_why() -> str:
    try:
        await book_twice("x")
    except ValueError as error:
        return f"{error}, then {await book('y')}"
    return "nothing was told"


@romulus.step(transaction=True)
async def books_and_returns(order: str) -> Any:
    await book_in(romulus.current_attempt().connection, order)
    return {"kept": object()} if order == "odd" else "x" * 20_000_000


@romulus.workflow
async def unstorable(order: str) -> str:
    try:
        await books_and_returns(order)
    except romulus.SerializationError as error:
        return str(error)
    return "stored"


@romulus.step
async def quick(number: int) -> None:
    await asyncio.sleep(0.001 * number)  # each ends in a turn of its own


@romulus.workflow
async def mixed() -> None:
    for turn in range(5):
        await asyncio.gather(book(f"a{turn}"), book(f"b{turn}"), *(quick(number) for number in range(10)))


@romulus.workflow
async def gives_one_up() -> str:
    first, second = asyncio.create_task(book("a")), asyncio.create_task(book("b"))
    await first
    second.cancel()
    await quick(1)
    return await book("c")


@romulus.step(transaction=True, timeout=10)
async def times_out_itself() -> None:
    raise TimeoutError("mine")


@romulus.workflow
async def catches() -> str:
    try:
        await times_out_itself.options(retry=romulus.Retry(max_attempts=1))()
    except romulus.StepTimeout:
        return "the step's"
    except Exception as error:
        return str(error)
    return "none"


class Ending:
    """A store's transaction that does something first when it is to be committed, and then waits to be allowed."""

    def __init__(self, transaction: Transaction, first: Callable[[], object], allowed: asyncio.Event) -> None:
        self._transaction, self._first, self._allowed = transaction, first, allowed
        self.connection = transaction.connection
        self.ready, self.rollback = transaction.ready, transaction.rollback

    async def commit(self, transition: Any) -> Any:
        self._first()
        await self._allowed.wait()
        return await self._transaction.commit(transition)


def once(worker: Worker) -> Callable[[], None]:
    """Return what drops all that a worker has in hand, the first time it is called."""
    done: list[str] = []

    def drop() -> None:
        if not done:
            done.append(worker.id)
            worker.doubt()

    return drop


async def test_a_transactional_step_dropped_as_its_body_ends_writes_nothing_and_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, booking) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        drop, finish = once(worker), worker.engine.executor.finish

        def dropped(work: Any) -> bool:
            withdrawn = finish(work)
            drop()
            return withdrawn

        monkeypatch.setattr(worker.engine.executor, "finish", dropped)
        handle = await w.client.start(booking, "x")
        assert await handle.result(timeout=20) == ["x", "x2"]
        assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
        assert BEGUN == [("x", 1), ("x", 2), ("x2", 1)]
        await eventually(lambda: worker.engine.slots.used == 0)


async def test_a_transactional_step_dropped_while_it_commits_writes_all_or_nothing_and_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, booking) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        drop, allowed, begin = once(worker), asyncio.Event(), worker.store.transaction

        def dropped() -> None:
            drop()
            asyncio.get_running_loop().call_soon(allowed.set)  # a cancelled step has been told by then

        async def transaction() -> Any:
            return Ending(await begin(), dropped, allowed)

        monkeypatch.setattr(worker.store, "transaction", transaction)
        handle = await w.client.start(booking, "x")
        assert await handle.result(timeout=20) == ["x", "x2"]
        assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
        await eventually(lambda: worker.engine.slots.used == 0)


@pytest.mark.parametrize(
    ("error", "committed"), [(CommitUnknown, True), (CommitUnknown, False), (StoreUnavailable, False), (BatchRejected, False)]
)
async def test_a_transactional_steps_commit_that_fails_leaves_its_writes_and_its_outcome_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], committed: bool
) -> None:
    async with world(tmp_path, booking) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        begin, failed = worker.store.transaction, list[str]()

        async def transaction() -> Any:
            made = await begin()
            commit = made.commit

            async def fails(transition: Any) -> Any:
                if failed:
                    return await commit(transition)
                failed.append(worker.id)
                await (commit(transition) if committed else made.rollback())
                raise error("the connection broke")

            monkeypatch.setattr(made, "commit", fails)
            return made

        monkeypatch.setattr(worker.store, "transaction", transaction)
        handle = await w.client.start(booking, "x")
        assert await handle.result(timeout=20) == ["x", "x2"]
        assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
        assert (worker.id, [number for order, number in BEGUN if order == "x"]) == (failed[0], [1] if committed else [1, 2])
        await eventually(lambda: worker.engine.slots.used == 0)


@pytest.mark.parametrize("error", [StoreUnavailable, BatchRejected])
async def test_a_transactional_step_of_which_nothing_was_committed_has_failed_as_its_retry_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async with world(tmp_path, told_why) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        begin = worker.store.transaction

        async def transaction() -> Any:
            made = await begin()

            async def refused(transition: Any) -> Any:
                await made.rollback()
                raise error("the batch") from ValueError("the true cause")

            if len(BEGUN) < 2:
                monkeypatch.setattr(made, "commit", refused)
            return made

        monkeypatch.setattr(worker.store, "transaction", transaction)
        handle = await w.client.start(told_why)
        assert await handle.result(timeout=20, raise_on_hold=True) == "the true cause, then y"
        assert BEGUN == [("x", 1), ("x", 2), ("y", 1)]
        assert w.rows("SELECT id FROM bookings") == [("y",)]
        await eventually(lambda: worker.engine.slots.used == 0)


async def test_a_timeout_that_the_body_of_a_transactional_step_raises_is_not_the_steps_own(tmp_path: Path) -> None:
    async with world(tmp_path, catches) as w:
        await w.worker()
        assert "mine" in await (await w.client.start(catches)).result(timeout=20)


async def test_a_run_with_transactional_steps_beside_many_others_has_one_transition_in_flight(tmp_path: Path) -> None:
    async with world(tmp_path, mixed) as w:
        w.make_table("id TEXT")
        await w.worker()
        await (await w.client.start(mixed)).result(timeout=20)
        assert w.rows("SELECT count(*) FROM evidence") == [(0,)]
        assert len(BEGUN) == 10


async def test_a_transactional_step_given_up_while_it_waits_for_its_turn_keeps_nobody_out(tmp_path: Path) -> None:
    async with world(tmp_path, gives_one_up) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        assert await (await w.client.start(gives_one_up)).result(timeout=20) == "c"
        assert w.rows("SELECT id FROM bookings") == [("a",), ("c",)]
        await eventually(lambda: worker.engine.slots.used == 0)


@pytest.mark.parametrize(("order", "why"), [("odd", "object"), ("large", "bytes")])
async def test_a_transactional_step_whose_result_cannot_be_stored_fails_and_has_written_nothing(
    tmp_path: Path, order: str, why: str
) -> None:
    async with world(tmp_path, unstorable) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        assert re.search(why, await (await w.client.start(unstorable, order)).result(timeout=20))
        assert w.rows("SELECT id FROM bookings") == []
        await eventually(lambda: worker.engine.slots.used == 0)
