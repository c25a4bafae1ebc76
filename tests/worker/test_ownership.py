"""One claim at a time: late reports are refused and kept, poison is found, stuck code is held, transactions carry the claim."""

from __future__ import annotations

import asyncio
import ctypes
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

import romulus
from romulus.worker import Worker
from tests.worker.rig import World, eventually, world

LIBC = ctypes.CDLL(None)
BODIES: list[tuple[str, int, int]] = []
GATE = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global GATE
    BODIES.clear()
    GATE = asyncio.Event()


def note(step: str) -> None:
    attempt = romulus.current_attempt()
    BODIES.append((step, attempt.number, attempt.fence))


@romulus.step
async def gated(n: int) -> int:
    note("gated")
    await GATE.wait()
    return n + 1


@romulus.step
async def after(n: int) -> int:
    note("after")
    return n


@romulus.workflow
async def flow(n: int) -> int:
    return await after(await gated(n))


async def write(order: str) -> None:
    """Insert a row of the user's through the attempt's connection, whichever store's it is."""
    connection = romulus.current_attempt().connection
    if isinstance(connection, apsw.Connection):
        connection.execute("INSERT INTO bookings VALUES (?)", (order,))
    else:
        await connection.execute("INSERT INTO bookings VALUES ($1)", order)


@romulus.step(transaction=True)
async def book(order: str) -> str:
    note("book")
    await write(order)
    return order


@romulus.step(transaction=True)
def book_in_thread(order: str) -> str:
    note("book")
    romulus.current_attempt().connection.execute("INSERT INTO bookings VALUES (?)", (order,))
    return order


@romulus.step(transaction=True, retry=romulus.Retry(max_attempts=2, initial=0.01))
async def overbook(order: str) -> str:
    note("overbook")
    await write(order)
    if romulus.current_attempt().number == 1:
        raise RuntimeError("full")
    return order


@romulus.workflow
async def booking(order: str) -> str:
    await book(order)
    return await overbook(order + "2")


@romulus.workflow
async def thread_booking(order: str) -> str:
    await book_in_thread.aio(order)
    return await overbook(order + "2")


@romulus.workflow
async def two_bookings(order: str) -> list[str]:
    return list(await asyncio.gather(book(order), book(order + "b"), after_text(order)))


@romulus.step
async def after_text(order: str) -> str:
    return order


@romulus.workflow
async def sticks(n: int) -> int:
    await after(n)
    LIBC.usleep(3_000_000)  # lets the interpreter go, but no exception thrown into the thread lands before it returns
    return n


def lose(w: World, worker: Worker) -> None:
    """Let the worker's lease end without its noticing, as a stopped process would."""
    with w.database() as database:
        database.execute("UPDATE workers SET lease_until = 0 WHERE id = ?", (worker.id,))


async def frozen(w: World, **settings: Any) -> Worker:
    """Return a worker that does not renew and does not sweep itself dead."""
    worker = await w.worker(**settings)
    assert worker._keeper is not None
    assert worker._keeper._ticker is not None
    worker._keeper._ticker.stop()
    await worker.maintenance.stop()
    return worker


async def test_a_worker_that_lost_its_claim_cannot_record_anything(tmp_path: Path) -> None:
    async with world(tmp_path, flow) as w:
        first = await frozen(w)
        handle = await w.client.start(flow.options(id="r"), 1)
        await eventually(lambda: len(BODIES) == 1)
        lose(w, first)
        await w.worker()
        await eventually(lambda: len(BODIES) == 2)
        GATE.set()
        assert await handle.result(timeout=20) == 2
        await eventually(lambda: bool(w.rows("SELECT 1 FROM evidence")))
        evidence = w.rows("SELECT kind, owner, fence FROM evidence")
    assert evidence == [("late_transition", first.id, BODIES[0][2])]
    assert [(step, number) for step, number, _ in BODIES] == [("gated", 1), ("gated", 2), ("after", 1)]
    assert BODIES[0][2] < BODIES[1][2] == BODIES[2][2]


async def test_a_healthy_worker_keeps_its_runs(tmp_path: Path) -> None:
    async with world(tmp_path, flow) as w:
        first = await w.worker()
        handle = await w.client.start(flow.options(id="r"), 1)
        await eventually(lambda: len(BODIES) == 1)
        second = await w.worker()
        for _ in range(5):
            await second.maintenance.sweep()
        GATE.set()
        assert await handle.result(timeout=20) == 2
        assert {owner for _, owner in w.rows("SELECT 1, owner FROM runs")} == {None}
        assert w.rows("SELECT count(*) FROM workers WHERE dead") == [(0,)]
        assert first.id
    assert [number for step, number, _ in BODIES if step == "gated"] == [1]


async def test_a_worker_found_dead_drops_its_work_and_serves_on_under_a_new_id(tmp_path: Path) -> None:
    async with world(tmp_path, flow) as w:
        worker = await w.worker()
        before = worker.id
        await w.client.start(flow.options(id="r"), 1)
        await eventually(lambda: len(BODIES) == 1)
        with w.database() as database:
            database.execute("UPDATE workers SET dead = TRUE")
        await eventually(lambda: worker.id != before)
        GATE.set()
        assert await w.client.get("r").result(timeout=20) == 2


async def test_a_run_that_kills_its_workers_is_claimed_alone_and_then_held(tmp_path: Path) -> None:
    async with world(tmp_path, flow) as w:
        await w.client.start(flow.options(id="r"), 1)
        for killed in range(5):
            worker = await w.worker()
            await eventually(lambda killed=killed: len(BODIES) == killed + 1)  # type: ignore[misc]
            await w.kill(worker)
        await w.worker()
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "lost" in held.hold_reason
        numbers = [number for _, number, _ in BODIES]
        GATE.set()
        await w.client.get("r").release()
        assert await w.client.get("r").result(timeout=20) == 2
    assert numbers == [1, 2, 3, 4, 5]


async def test_a_transactional_step_writes_with_its_outcome_or_not_at_all(tmp_path: Path) -> None:
    async with world(tmp_path, booking) as w:
        w.make_table("id TEXT")
        await w.worker()
        assert await (await w.client.start(booking, "x")).result(timeout=20) == "x2"
        assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
    assert [(step, number) for step, number, _ in BODIES] == [("book", 1), ("overbook", 1), ("overbook", 2)]


async def test_a_def_transactional_step_writes_with_its_outcome_or_is_refused_before_anything_is_claimed(
    tmp_path: Path, on_store: str
) -> None:
    async with world(tmp_path, thread_booking) as w:
        w.make_table("id TEXT")
        handle = await w.client.start(thread_booking, "x")
        if on_store == "sqlite":
            await w.worker()
            assert await handle.result(timeout=20) == "x2"
            assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
        else:
            with pytest.raises(
                romulus.ConfigurationError, match=r"book_in_thread: a step with transaction=True is `async def` on postgresql"
            ):
                await w.worker()
            assert (BODIES, w.rows("SELECT count(*) FROM bookings")) == ([], [(0,)])


async def test_transactional_steps_beside_others_all_end(tmp_path: Path) -> None:
    async with world(tmp_path, two_bookings) as w:
        w.make_table("id TEXT")
        await w.worker()
        assert await (await w.client.start(two_bookings, "x")).result(timeout=20) == ["x", "xb", "x"]


async def test_a_lost_claim_rolls_back_a_transactional_step(tmp_path: Path) -> None:
    async with world(tmp_path, booking) as w:
        w.make_table("id TEXT")
        worker = await w.worker()
        # The claim changes hands between the step's writes and its commit: inside that very transaction the guard must see it.
        original = worker.store.transaction

        async def stolen() -> Any:
            transaction = await original()
            if isinstance(transaction.connection, apsw.Connection):
                transaction.connection.execute("UPDATE runs SET fence = fence + 1")
            else:
                await transaction.connection.execute("UPDATE romulus.runs SET fence = fence + 1")
            return transaction

        worker.store.transaction = stolen  # type: ignore[method-assign]
        handle = await w.client.start(booking.options(id="r"), "x")
        await eventually(lambda: len(BODIES) >= 1)
        worker.store.transaction = original  # type: ignore[method-assign]
        assert await handle.result(timeout=20) == "x2"
        assert w.rows("SELECT id FROM bookings") == [("x",), ("x2",)]
    assert [step for step, _, _ in BODIES][:2] == ["book", "book"]


async def test_code_stuck_in_a_c_call_is_held_by_the_watchdog_itself(tmp_path: Path) -> None:
    async with world(tmp_path, sticks) as w:
        await w.worker(activation_limit=100_000, activation_landing=100_000)
        await w.client.start(sticks.options(id="r"), 1)
        held = await w.until("r", "held")
        assert "did not give control back" in (held.hold_reason or "")
        assert [entry.value for entry in await w.client.get("r").history()] == [1]
    assert [step for step, _, _ in BODIES] == ["after"]


async def test_armed_attempts_are_in_the_row_before_their_bodies_run(tmp_path: Path) -> None:
    seen: list[Any] = []

    @romulus.step
    async def looks() -> None:
        seen.extend(w.rows("SELECT armed FROM runs"))

    @romulus.workflow
    async def looking() -> None:
        await looks()

    async with world(tmp_path, looking) as w:
        await w.worker()
        await (await w.client.start(looking)).result(timeout=20)
    assert [entry[:2] for entry in json.loads(seen[0][0])] == [[1, 1]]


async def test_an_apsw_connection_is_what_a_transactional_step_gets(tmp_path: Path) -> None:
    kinds: list[type] = []

    @romulus.step(transaction=True)
    def looks() -> None:
        kinds.append(type(romulus.current_attempt().connection))

    @romulus.workflow
    async def looking() -> None:
        await looks.aio()

    async with world(tmp_path, looking) as w:
        await w.worker()
        await (await w.client.start(looking)).result(timeout=20)
    assert issubclass(kinds[0], apsw.Connection)
