"""What a lost worker leaves is taken over; what is recorded never happens again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import romulus
from tests.worker.gates import CALLS, GATE, fresh
from tests.worker.rig import eventually, world

__all__ = ["fresh"]


@romulus.step
async def first(n: int) -> int:
    CALLS.append(("first", romulus.current_attempt().number))
    return n + 1


@romulus.step
async def blocked(n: int) -> int:
    CALLS.append(("blocked", romulus.current_attempt().number))
    await GATE.wait()
    return n * 10


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def once(n: int) -> int:
    CALLS.append(("once", romulus.current_attempt().number))
    await GATE.wait()
    return n


@romulus.workflow
async def chain(n: int) -> int:
    return await blocked(await first(n))


@romulus.workflow
async def careful(n: int) -> int:
    return await once(n)


async def test_a_committed_step_does_not_run_again_and_a_lost_attempt_does(tmp_path: Path) -> None:
    async with world(tmp_path, chain) as w:
        worker = await w.worker()
        handle = await w.client.start(chain.options(id="r"), 1)
        await eventually(lambda: ("blocked", 1) in CALLS)
        await w.kill(worker)
        GATE.set()
        await w.worker()

        assert await handle.result(timeout=20) == 20
    assert CALLS == [("first", 1), ("blocked", 1), ("blocked", 2)]


async def test_a_step_with_one_attempt_is_held_when_its_worker_is_lost(tmp_path: Path) -> None:
    async with world(tmp_path, careful) as w:
        worker = await w.worker()
        handle = await w.client.start(careful.options(id="r"), 1)
        await eventually(lambda: ("once", 1) in CALLS)
        await w.kill(worker)
        await w.worker()
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "attempt 1 of step 'once'" in held.hold_reason
        (pending,) = held.pending
        assert (pending.name, pending.state, pending.attempt, pending.due) == ("once", "held", 1, None)

        GATE.set()
        await handle.release()
        assert await handle.result(timeout=20) == 1
    assert CALLS == [("once", 1), ("once", 2)]


async def test_a_graceful_stop_lets_attempts_finish_and_frees_the_run(tmp_path: Path) -> None:
    async with world(tmp_path, chain) as w:
        worker = await w.worker()
        handle = await w.client.start(chain.options(id="r"), 1)
        await eventually(lambda: ("blocked", 1) in CALLS)
        stopping = asyncio.create_task(w.stop(worker))
        await eventually(lambda: worker.stopping)
        GATE.set()
        await stopping
        await w.worker()

        assert await handle.result(timeout=20) == 20
    assert CALLS == [("first", 1), ("blocked", 1)]


async def test_a_stop_past_its_grace_releases_the_claim_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, chain) as w:
        worker = await w.worker()
        handle = await w.client.start(chain.options(id="r"), 1)
        await eventually(lambda: ("blocked", 1) in CALLS)
        await w.stop(worker, grace=0)
        described = await handle.describe()
        assert (described.status, [pending.name for pending in described.pending]) == ("pending", ["blocked"])
        GATE.set()
        await w.worker()

        assert await handle.result(timeout=20) == 20
    assert CALLS[-1] == ("blocked", 2)


async def test_deploys_that_cut_an_attempt_off_never_hold_the_run(tmp_path: Path) -> None:
    async with world(tmp_path, chain) as w:
        handle = await w.client.start(chain.options(id="r"), 1)
        for deploy in range(1, 8):
            worker = await w.worker()
            await eventually(lambda deploy=deploy: ("blocked", deploy) in CALLS)  # type: ignore[misc]
            (pending,) = (await handle.describe()).pending
            assert (pending.name, pending.attempt, pending.state) == ("blocked", deploy, "armed")
            await w.stop(worker, grace=0)
        GATE.set()
        await w.worker()

        assert await handle.result(timeout=20) == 20
    assert [("first", 1), *(("blocked", attempt) for attempt in range(1, 9))] == CALLS


async def test_a_stop_that_cuts_off_a_step_with_one_attempt_leaves_it_to_a_person(tmp_path: Path) -> None:
    async with world(tmp_path, careful) as w:
        worker = await w.worker()
        await w.client.start(careful.options(id="r"), 1)
        await eventually(lambda: ("once", 1) in CALLS)
        await w.stop(worker, grace=0)
        await w.worker()
        held = await w.until("r", "held")
        assert "one attempt only" in (held.hold_reason or "")
