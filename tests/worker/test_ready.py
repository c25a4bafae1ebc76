"""What a worker claims in the commit that starts a run is taken up as anything else that it claims."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

import romulus
from romulus.core.machine import RunStatus
from romulus.store.contract import ClaimRequest, Claims
from romulus.store.sqlite.writer import Pace
from romulus.worker import Worker
from romulus.worker.claiming import Claimer
from tests.worker.rig import World, eventually, url_of, world

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")
STARTED: list[int] = []
GATE = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    global GATE
    STARTED.clear()
    GATE = asyncio.Event()
    monkeypatch.setattr(Pace, "in_place", lambda _: True)  # however busy this machine is


@romulus.step
async def says_who() -> str:
    return WHO.get()


@romulus.workflow
async def asks_who() -> str:
    return await says_who()


@romulus.step
async def waits(n: int) -> int:
    STARTED.append(n)
    await GATE.wait()
    return n


@romulus.workflow
async def holds_up(n: int) -> int:
    return await waits(n)


class Whose:
    """A codec that notes in whose context it decodes."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        self.seen.append(WHO.get())
        return data


async def test_nothing_of_a_run_is_in_the_context_of_whoever_started_it(tmp_path: Path) -> None:
    codec = Whose()
    app = romulus.App(url_of(tmp_path / "romulus.db"), workflows=[asks_who], codec=codec)
    async with app.worker(), app.client() as client:
        asking = asyncio.get_running_loop().create_task(start_as(client, "somebody"))
        handle = await asking
        assert await handle.result() == "nobody"
    assert set(codec.seen) == {"nobody"}


async def start_as(client: romulus.AsyncClient, who: str) -> romulus.AsyncHandle[str]:
    WHO.set(who)
    return await client.start(asks_who)


async def test_no_more_runs_are_claimed_than_there_is_room_for_however_close_the_commits_are(tmp_path: Path) -> None:
    """Events are stored at every turn of the loop about that at which the runs are started."""
    app = romulus.App(url_of(tmp_path / "romulus.db"), workflows=[holds_up])
    async with app.worker(concurrency=1), app.client() as client, world(tmp_path, holds_up) as w:

        async def sends_after(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await client.send_event("go", correlation_id=f"c-{turns}")

        starting = asyncio.gather(*(client.start(holds_up, n) for n in range(20)))
        sending = asyncio.gather(*(sends_after(turns) for turns in range(20)))
        handles = await starting
        await sending
        assert owned(w) <= 2
        GATE.set()
        assert [await handle.result() for handle in handles] == list(range(20))


async def test_a_worker_that_stops_claims_nothing_with_a_start(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        store, claimer = worker.store, worker.claimer
        assert claimer.request() is not None
        stopping = asyncio.ensure_future(w.stop(worker))
        await asyncio.sleep(0)
        assert worker.stopping
        assert claimer.request() is None
        await stopping
        assert list(store.hub.ready) == []


async def test_a_worker_that_serves_a_pool_alone_claims_nothing_with_a_start(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker(pools=("gpu",))
        assert worker.claimer.request() is None


async def test_a_worker_whose_claim_in_the_commit_of_others_had_no_answer_takes_another_name(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        old = worker.id
        (ready,) = worker.store.hub.ready
        ready.doubt()
        await eventually(lambda: worker.id != old)


async def test_no_look_is_made_while_a_statement_of_others_claims_for_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """And the next such statement waits for the look: it would never come, beside somebody who sends one event after the other."""
    async with world(tmp_path, holds_up) as w:
        GATE.set()
        worker = await w.worker()
        claimer, looks, real = worker.claimer, 0, worker.store.claim
        await settled(claimer)

        async def counted(request: ClaimRequest, to: RunStatus) -> Claims:
            nonlocal looks
            looks += 1
            return await real(request, to)

        monkeypatch.setattr(worker.store, "claim", counted)
        with claimer.waiting() as wanted:
            assert wanted is not None
            handle = await w.client.start(holds_up, 1)
            claimer.poke()
            for _ in range(100):
                await asyncio.sleep(0)
            assert (looks, STARTED) == (0, [])
        with claimer.waiting() as wanted:
            assert wanted is None
        assert await handle.result() == 1


async def test_a_run_being_claimed_for_a_worker_by_a_statement_of_others_is_not_given_back(tmp_path: Path) -> None:
    """The store says that it is the worker's before the answer is there; one whose answer was lost is given back."""
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        await settled(worker.claimer)
        with worker.claimer.waiting() as wanted:
            assert wanted is not None
            await w.client.start(holds_up.options(id="r1"), 1)
            await worker.store.claim(*wanted)
            for _ in range(3):
                await worker.strays.look()
            assert owned(w) == 1
        GATE.set()
        await settled(worker.claimer)
        await worker.strays.look()
        assert await w.client.get("r1").result() == 1


async def test_statements_of_others_claim_for_a_worker_one_after_the_other(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        claimer = (await w.worker()).claimer
        await settled(claimer)
        with claimer.waiting() as first, claimer.waiting() as second:
            assert first is not None
            assert second is None
        with claimer.waiting() as again:
            assert again is not None


async def test_nothing_is_claimed_by_a_statement_of_others_while_a_look_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        await settled(worker.claimer)
        looking, real = asyncio.Event(), worker.store.claim

        async def slow(request: ClaimRequest, to: RunStatus) -> Claims:
            looking.set()
            await GATE.wait()
            return await real(request, to)

        monkeypatch.setattr(worker.store, "claim", slow)
        worker.claimer.poke()
        await looking.wait()
        with worker.claimer.waiting() as wanted:
            assert wanted is None
        GATE.set()
        await settled(worker.claimer)
        with worker.claimer.waiting() as wanted:
            assert wanted is not None


async def test_due_runs_that_there_was_no_room_for_come_before_what_an_event_wakes(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        claimer = (await w.worker()).claimer
        await settled(claimer)
        claimer._starved = True
        with claimer.waiting() as wanted:
            assert wanted is None


async def test_a_look_goes_on_beside_a_statement_of_others_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for somebody's lock, say. One place is left for what it may claim."""
    monkeypatch.setattr("romulus.worker.claiming.ELSEWHERE_MAX", 1_000)
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker(concurrency=1)
        await settled(worker.claimer)
        with worker.claimer.waiting() as wanted:
            assert wanted is not None
            handles = [await w.client.start(holds_up, n) for n in range(5)]
            worker.claimer.poke()
            await eventually(lambda: bool(STARTED))
            for _ in range(100):
                await asyncio.sleep(0)
            assert owned(w) == wanted[0].limit - 1
        GATE.set()
        assert [await handle.result() for handle in handles] == list(range(5))


async def test_no_run_is_claimed_alone_beside_one_that_a_statement_of_others_may_be_claiming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("romulus.worker.claiming.ELSEWHERE_MAX", 1_000)
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        await settled(worker.claimer)
        asked: list[bool] = []
        real = worker.store.claim

        async def noted(request: ClaimRequest, to: RunStatus) -> Claims:
            asked.append(request.alone)
            return replace(await real(request, to), alone=True)

        monkeypatch.setattr(worker.store, "claim", noted)
        with worker.claimer.waiting():
            worker.claimer.poke()
            await eventually(lambda: bool(asked))
            await eventually(lambda: worker.claimer.begun == worker.claimer.ended + 1)
            assert True not in asked
        await settled(worker.claimer)
        assert True in asked


@pytest.mark.parametrize("closing", [False, True])
async def test_a_stop_waits_for_what_is_being_claimed_for_the_worker_and_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing: bool
) -> None:
    """Also while the last look, which has claimed what there was, still *closes* children."""
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        await settled(worker.claimer)
        if closing:
            await closes_children_until_the_gate_opens(worker, monkeypatch)
        with worker.claimer.waiting() as wanted:
            assert wanted is not None
            stopping = asyncio.ensure_future(w.stop(worker))
            await w.client.start(holds_up.options(id="r1"), 1)
            while not worker.claimer._stopped:
                await asyncio.sleep(0)
            GATE.set()
            for _ in range(100):
                await asyncio.sleep(0)
            claims = await worker.store.claim(*wanted)
            worker.claimer.claimed(wanted[0], claims)
            assert [worker.claimer.holds(record.run.key) for record in claims.records] == [True]
        await stopping
        assert w.rows("SELECT status, owner FROM runs WHERE id = 'r1'")[0][1] is None


async def closes_children_until_the_gate_opens(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    closing, claim = asyncio.Event(), worker.store.claim

    async def sees_some(request: ClaimRequest, to: RunStatus) -> Claims:
        return replace(await claim(request, to), closing=True)

    async def close_children(limit: int, decide: object) -> int:
        closing.set()
        await GATE.wait()
        return 0

    monkeypatch.setattr(worker.store, "claim", sees_some)
    monkeypatch.setattr(worker.store, "close_children", close_children)
    worker.claimer.poke()
    await closing.wait()


async def test_what_is_claimed_for_a_worker_that_is_gone_is_not_taken_up(tmp_path: Path) -> None:
    async with world(tmp_path, holds_up) as w:
        worker = await w.worker()
        await settled(worker.claimer)
        with worker.claimer.waiting() as wanted:
            assert wanted is not None
            await w.client.start(holds_up.options(id="r1"), 1)
            claims = await worker.store.claim(*wanted)
            await worker.claimer.stop(at_once=True)
            worker.claimer.claimed(wanted[0], claims)
        for _ in range(100):
            await asyncio.sleep(0)
        assert STARTED == []


async def settled(claimer: Claimer) -> None:
    """Wait until a look of the worker is over, with none under way."""
    begun = claimer.begun
    claimer.poke()
    await eventually(lambda: claimer.ended == claimer.begun > begun)


def owned(w: World) -> int:
    ((count,),) = w.rows("SELECT count(*) FROM runs WHERE owner IS NOT NULL")
    return int(count)
