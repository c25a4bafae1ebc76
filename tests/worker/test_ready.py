"""What a worker claims in the commit that starts a run is taken up as anything else that it claims."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path

import pytest

import romulus
from romulus.store.sqlite.writer import Pace
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


def owned(w: World) -> int:
    ((count,),) = w.rows("SELECT count(*) FROM runs WHERE owner IS NOT NULL")
    return int(count)
