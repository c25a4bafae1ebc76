"""A run that the store says is a worker's, and that nobody in the worker holds, is given back; any other is left alone."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest, Claims, Owned
from romulus.worker import Worker
from tests.worker.rig import World, eventually, world

CALLS: list[str] = []
GATE = asyncio.Event()
BODY = asyncio.Event()
REPLAYED = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global GATE, BODY, REPLAYED
    CALLS.clear()
    GATE, BODY, REPLAYED = asyncio.Event(), asyncio.Event(), asyncio.Event()


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def pays() -> str:
    CALLS.append("paid")
    await BODY.wait()
    return "receipt"


@romulus.workflow
async def buys() -> str:
    return await pays()


@romulus.step
async def first() -> None:
    CALLS.append("first")


@romulus.workflow
async def buys_when_told() -> str:
    await first()
    await romulus.wait_for_event("go", correlation_id="c")
    return await pays()


def row(w: World) -> tuple[Any, ...]:
    return w.rows("SELECT status, losses FROM runs")[0]


def answers_late(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let claims be carried out at once and answered when the gate opens."""
    claim = worker.store.claim

    async def late(request: ClaimRequest, to: RunStatus) -> Claims:
        claims = await claim(request, to)
        if claims.records:
            CALLS.append("claimed")
            await GATE.wait()
        return claims

    monkeypatch.setattr(worker.store, "claim", late)


async def looks(worker: Worker) -> None:
    for _ in range(3):
        await worker.strays.look()
    await worker.engine.committer.drained()


@pytest.mark.parametrize("lost", ["answer", "hand-over"])
async def test_a_run_whose_claim_was_lost_in_the_process_is_given_back_without_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    async with world(tmp_path, buys) as w:
        worker = await w.worker(stray=1)
        give = worker.claimer._give  # pyright: ignore[reportPrivateUsage]

        def broken(records: Any) -> None:
            if not records or "lost" in CALLS:
                give(records)
                return
            CALLS.append("lost")
            if lost == "answer":
                raise ZeroDivisionError("a defect")

        monkeypatch.setattr(worker.claimer, "_give", broken)
        BODY.set()
        with caplog.at_level(logging.WARNING):
            assert await (await w.client.start(buys)).result(timeout=20) == "receipt"
        assert w.rows("SELECT losses FROM runs") == [(0,)]
    assert CALLS == ["lost", "paid"]
    assert "is held by nobody in it: it is given back" in caplog.text


async def test_a_run_whose_claim_is_being_answered_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, buys) as w:
        worker = await w.worker(stray=60_000_000)
        answers_late(worker, monkeypatch)
        handle = await w.client.start(buys.options(id="r"))
        await eventually(lambda: "claimed" in CALLS)
        before = await worker.store.owned(worker.id)
        await looks(worker)
        assert await worker.store.owned(worker.id) == before

        GATE.set()
        BODY.set()
        assert await handle.result(timeout=20) == "receipt"
    assert CALLS == ["claimed", "paid"]


async def test_a_run_that_is_held_is_left_alone_whatever_happens_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, buys_when_told) as w:
        worker = await w.worker(stray=60_000_000, cache_max=0)
        handle = await w.client.start(buys_when_told.options(id="r"))
        await w.until("r", "waiting")
        replay = worker.loader._replay  # pyright: ignore[reportPrivateUsage]

        async def slow(record: Record) -> None:
            CALLS.append("replays")
            await REPLAYED.wait()
            await replay(record)

        monkeypatch.setattr(worker.loader, "_replay", slow)
        await w.client.send_event("go", correlation_id="c", payload=None)
        await eventually(lambda: "replays" in CALLS)
        first = await worker.store.owned(worker.id)
        await looks(worker)
        assert await worker.store.owned(worker.id) == first

        REPLAYED.set()
        await eventually(lambda: "paid" in CALLS)
        await looks(worker)
        assert await worker.store.owned(worker.id) == first

        BODY.set()
        assert await handle.result(timeout=20) == "receipt"


async def test_a_run_that_is_taken_anew_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, buys_when_told) as w:
        worker = await w.worker(stray=60_000_000)
        handle = await w.client.start(buys_when_told.options(id="r"))
        await w.until("r", "waiting")
        await w.client.send_event("go", correlation_id="c", payload=None)
        await eventually(lambda: "paid" in CALLS)
        reclaim = worker.store.reclaim

        async def slowly(run: int, owner: str, fence: int) -> Record | None:
            CALLS.append("reclaims")
            await GATE.wait()
            return await reclaim(run, owner, fence)

        monkeypatch.setattr(worker.store, "reclaim", slowly)
        (driver,) = worker.memory.active.values()
        worker.rebuild(driver)
        await eventually(lambda: "reclaims" in CALLS)
        before = await worker.store.owned(worker.id)
        assert before
        await looks(worker)
        assert await worker.store.owned(worker.id) == before
        GATE.set()
        held = await w.until("r", "held")  # its one attempt was dropped
        assert held.hold_reason is not None
        await handle.terminate("enough")


async def test_a_stray_is_given_back_under_the_claim_that_was_seen_only(tmp_path: Path) -> None:
    async with world(tmp_path, buys) as w:
        worker = await w.worker(stray=60_000_000)
        await w.client.start(buys.options(id="r"))
        await eventually(lambda: "paid" in CALLS)
        (driver,) = worker.memory.active.values()
        (owned,) = await worker.store.owned(worker.id)
        assert owned == Owned(driver.run.key, driver.run.fence, "default", "r")
        del worker.memory.active[owned.key]
        await worker.strays._give_back(owned._replace(fence=owned.fence - 1))  # pyright: ignore[reportPrivateUsage]
        worker.memory.enter(driver)
        await worker.strays._give_back(owned)  # pyright: ignore[reportPrivateUsage]
        await worker.engine.committer.drained()
        assert await worker.store.owned(worker.id) == [owned]
        BODY.set()


async def test_a_claim_under_way_on_a_thread_when_the_worker_stops_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, buys) as w:
        worker = await w.worker(stray=60_000_000)
        claim = worker.store.claim

        async def on_its_thread(request: ClaimRequest, to: RunStatus) -> Claims:
            await GATE.wait()
            return await claim(request, to)

        async def asked(request: ClaimRequest, to: RunStatus) -> Claims:
            CALLS.append("asked")
            return await asyncio.shield(asyncio.ensure_future(on_its_thread(request, to)))

        monkeypatch.setattr(worker.store, "claim", asked)
        await w.client.start(buys.options(id="r"))
        await eventually(lambda: "asked" in CALLS)
        deregister = worker.store.deregister

        async def last(worker_id: str) -> None:
            GATE.set()
            await deregister(worker_id)

        monkeypatch.setattr(worker.store, "deregister", last)
        stopping = asyncio.ensure_future(w.stop(worker))
        await eventually(lambda: worker.stopping)
        worker.host.call_soon(GATE.set)
        await stopping
        assert row(w) == ("pending", 0)


@pytest.mark.parametrize("answered", [True, False])
async def test_a_worker_that_stops_during_a_claim_leaves_no_run_behind_and_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    async with world(tmp_path, buys) as w:
        worker = await w.worker(stray=60_000_000)
        answers_late(worker, monkeypatch)
        await w.client.start(buys.options(id="r"))
        await eventually(lambda: "claimed" in CALLS)
        stopping = asyncio.ensure_future(w.stop(worker))
        await eventually(lambda: worker.stopping)
        if answered:
            GATE.set()
        await stopping
        assert row(w) == ("pending", 0)
    assert CALLS == ["claimed"]
