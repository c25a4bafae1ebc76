"""A run that another worker takes up goes on where it stood: back-offs go on, no send is repeated, and a hold is not outvoted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import romulus
from romulus import NotSent, Operation, Retry
from romulus.core.machine import RunStatus
from tests.worker.gates import CALLS, GATE, fresh, gated, noted
from tests.worker.rig import World, eventually, world

clear = fresh
LATER = Retry(max_attempts=3, initial=3_600, jitter=0)
SENT: list[int] = []


@romulus.step(retry=LATER)
async def fails() -> None:
    CALLS.append("failed")
    raise ValueError("not now")


@romulus.step(retry=LATER)
async def hangs() -> None:
    CALLS.append("hung")
    await GATE.wait()


@romulus.step(retry=Retry(max_attempts=1))
async def pays() -> None:
    CALLS.append("paid")
    await GATE.wait()


@romulus.workflow
async def fails_beside() -> str:
    beside = asyncio.ensure_future(fails())
    await romulus.wait_for_event("look")
    await romulus.wait_for_event("enough")
    beside.cancel()
    return "enough"


@romulus.workflow
async def hangs_alone() -> None:
    await hangs()


@romulus.workflow
async def pays_beside() -> None:
    await asyncio.gather(pays(), gated("beside"))


async def parked_again(w: World) -> None:
    """Wait until what woke the run is recorded."""
    await eventually(lambda: w.rows("SELECT status, position FROM runs") == [("waiting", 1)])


async def test_a_back_off_goes_on_where_another_worker_takes_the_run_up(tmp_path: Path) -> None:
    async with world(tmp_path, fails_beside) as w:
        first = await w.worker()
        handle = await w.client.start(fails_beside)
        await w.until(handle.id, RunStatus.WAITING)
        await w.kill(first)
        await w.worker()
        await handle.send_event("look")
        await parked_again(w)
        assert CALLS == ["failed"]

        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "enough"
    assert CALLS == ["failed"]


async def test_a_step_that_was_lost_by_a_run_claimed_alone_waits_for_its_back_off(tmp_path: Path) -> None:
    async with world(tmp_path, hangs_alone) as w:
        first = await w.worker()
        handle = await w.client.start(hangs_alone)
        await eventually(lambda: CALLS == ["hung"])
        with w.database() as database:
            database.execute("UPDATE runs SET losses = 3")
        await w.kill(first)
        await w.worker()
        await w.until(handle.id, RunStatus.WAITING, RunStatus.HELD)

        assert w.rows("SELECT failures, losses FROM attempts") == [(1, 0)]
    assert CALLS == ["hung"]


async def test_a_lost_step_with_one_attempt_holds_the_run_whatever_was_lost_beside_it(tmp_path: Path) -> None:
    async with world(tmp_path, pays_beside) as w:
        first = await w.worker()
        handle = await w.client.start(pays_beside)
        await eventually(lambda: sorted(CALLS) == ["beside", "paid"])
        await w.kill(first)
        GATE.set()
        await w.worker()
        await w.until(handle.id, RunStatus.HELD, RunStatus.SUCCEEDED)
    assert CALLS.count("paid") == 1


@romulus.operation(timeout=60, retry=Retry(max_attempts=3, initial=0.01, jitter=0))
async def unreachable_at_first(op: Operation) -> str:
    SENT.append(op.attempt)
    if len(SENT) == 1:
        raise NotSent("no route")
    await GATE.wait()
    return "sent"


@unreachable_at_first.lookup
async def found(op: Operation) -> romulus.LookupResult[str]:
    return romulus.Applied("found")


@romulus.workflow
async def writes() -> str:
    return await unreachable_at_first()


@romulus.operation(timeout=60, retry=LATER)
async def unreachable(op: Operation) -> str:
    SENT.append(op.attempt)
    raise NotSent("no route")


@romulus.workflow
async def writes_beside() -> str:
    beside = asyncio.ensure_future(unreachable())
    await romulus.wait_for_event("look")
    await romulus.wait_for_event("enough")
    beside.cancel()
    return "enough"


async def test_the_back_off_of_an_operation_that_never_left_goes_on_where_another_worker_takes_the_run_up(tmp_path: Path) -> None:
    SENT.clear()
    async with world(tmp_path, writes_beside) as w:
        first = await w.worker()
        handle = await w.client.start(writes_beside)
        await w.until(handle.id, RunStatus.WAITING)
        await w.kill(first)
        await w.worker()
        await handle.send_event("look")
        await parked_again(w)
        assert w.rows("SELECT number, failures FROM attempts") == [(1, 1)]

        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "enough"
    assert SENT == [1]


@romulus.operation(pool="payments", timeout=60, retry=Retry(initial=0.01, jitter=0, max_attempts=None))
async def unreachable_for_long(op: Operation) -> str:
    SENT.append(op.attempt)
    if len(SENT) < 5:
        raise NotSent("no route")
    return "sent"


@romulus.workflow
async def writes_elsewhere() -> str:
    return await unreachable_for_long()


async def test_an_operation_of_a_pool_without_a_limit_of_attempts_is_sent_until_it_leaves(tmp_path: Path) -> None:
    SENT.clear()
    async with world(tmp_path, writes_elsewhere) as w:
        worker = await w.worker(pools=("default", "payments"))
        name = worker.id
        assert await (await w.client.start(writes_elsewhere)).result(timeout=20) == "sent"
        assert worker.id == name
    assert len(SENT) == 5


@romulus.workflow
async def writes_and_waits() -> str:
    written = await unreachable_at_first()
    await romulus.wait_for_event("enough")
    return written


async def test_nothing_is_left_of_the_attempts_of_an_operation_that_was_sent(tmp_path: Path) -> None:
    SENT.clear()
    GATE.set()
    async with world(tmp_path, writes_and_waits) as w:
        await w.worker()
        handle = await w.client.start(writes_and_waits)
        await eventually(lambda: w.rows("SELECT status, position FROM runs") == [("waiting", 1)])
        assert w.rows("SELECT count(*) FROM attempts") == [(0,)]

        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "sent"
    assert len(SENT) == 2


async def test_an_operation_that_may_have_been_sent_is_not_sent_again_for_what_never_left_before(tmp_path: Path) -> None:
    SENT.clear()
    async with world(tmp_path, writes) as w:
        first = await w.worker()
        handle = await w.client.start(writes)
        await eventually(lambda: len(SENT) == 2)
        await w.kill(first)
        await w.worker()

        assert await handle.result(timeout=20) == "found"
        assert w.rows("SELECT count(*) FROM attempts") == [(0,)]
    assert SENT == [1, 2]


def goes_on() -> int:
    """Note which attempt this is and from which heartbeat it goes on; the first one sends the heartbeat."""
    attempt = romulus.current_attempt()
    CALLS.append(f"{attempt.number} from {attempt.last_heartbeat}")
    if attempt.number == 1:
        attempt.heartbeat(7)
    return attempt.number


@romulus.step
async def counts() -> int:
    number = goes_on()
    await GATE.wait()
    return number


@romulus.workflow
async def has_it_counted() -> int:
    return await counts()


async def test_an_attempt_goes_on_from_the_last_heartbeat_of_those_that_stops_cut_off(tmp_path: Path) -> None:
    async with world(tmp_path, has_it_counted) as w:
        handle = await w.client.start(has_it_counted)
        for number in (1, 2):
            worker = await w.worker()
            await eventually(lambda number=number: len(CALLS) == number)  # type: ignore[misc]
            await w.stop(worker, grace=0)
        GATE.set()
        await w.worker()

        assert await handle.result(timeout=20) == 3
    assert CALLS == ["1 from None", "2 from 7", "3 from 7"]


@romulus.step(pool="gpu", retry=Retry(max_attempts=3, initial=0.01, jitter=0))
async def trains() -> int:
    number = goes_on()
    if number < 3:
        raise ValueError("not now")
    return number


@romulus.workflow
async def has_it_trained() -> int:
    return await trains()


async def test_an_attempt_of_a_pool_goes_on_from_the_last_heartbeat_of_those_that_failed(tmp_path: Path) -> None:
    async with world(tmp_path, has_it_trained) as w:
        await w.worker(pools=("default", "gpu"))
        assert await (await w.client.start(has_it_trained)).result(timeout=20) == 3
    assert CALLS == ["1 from None", "2 from 7", "3 from 7"]


@romulus.workflow
async def cleans_up() -> None:
    try:
        await romulus.wait_for_event("never")
    finally:
        await noted("cleaned")
        await noted("all of it")


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_cancel_gives_its_time_from_now_on_whenever_the_record_says_the_run_began(tmp_path: Path, hours: int) -> None:
    async with world(tmp_path, cleans_up) as w:
        first = await w.worker()
        handle = await w.client.start(cleans_up)
        await w.until(handle.id, RunStatus.WAITING)
        await w.kill(first)
        with w.database() as database:  # it waits for long, or the store's clock was ahead
            database.execute(f"UPDATE runs SET started_at = started_at + {hours} * 3600000000")
        await w.worker()
        await handle.cancel("enough")

        await w.until(handle.id, RunStatus.CANCELLED, RunStatus.HELD)
        assert [entry.kind for entry in await handle.history()] == ["cancel", "step", "step"]


@romulus.workflow(timeout=3_600)
async def bounded() -> None:
    await romulus.wait_for_event("look")
    await romulus.wait_for_event("never")


async def test_a_runs_own_timeout_goes_on_where_another_worker_takes_the_run_up(tmp_path: Path) -> None:
    async with world(tmp_path, bounded) as w:
        first = await w.worker()
        handle = await w.client.start(bounded)
        await w.until(handle.id, RunStatus.WAITING)
        await w.kill(first)
        await w.worker()
        await handle.send_event("look")
        await parked_again(w)

        assert w.rows("SELECT count(*) FROM runs WHERE wake_at = deadline") == [(1,)]
