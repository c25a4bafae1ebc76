"""Steps of pools: worked by whichever worker serves the pool, while their run waits without a claim."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.machine import RunStatus
from romulus.worker import Worker
from tests.worker.rig import World, eventually, world

GPU = ("gpu",)
began: asyncio.Queue[romulus.Attempt] = asyncio.Queue()
gate = asyncio.Event()
unwanted: list[int] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    global began, gate
    began, gate = asyncio.Queue(), asyncio.Event()
    unwanted.clear()


class Broken(Exception):
    """What steps here raise."""


@romulus.step(pool="gpu")
async def double(n: int) -> int:
    return n * 2


@romulus.step(pool="gpu")
def double_in_thread(n: int) -> int:
    return n * 2


@romulus.step
async def plain(n: int) -> int:
    return n + 1


@romulus.step(pool="gpu", retry=romulus.Retry(max_attempts=3, initial=0.01))
async def third_time(n: int) -> str:
    attempt = romulus.current_attempt()
    found = attempt.last_heartbeat
    attempt.heartbeat({"tried": attempt.number})
    if attempt.number < n:
        raise Broken(f"attempt {attempt.number}")
    return f"attempt {attempt.number} found {found}"


@romulus.step(pool="gpu", retry=romulus.Retry(max_attempts=5, initial=0.01, non_retryable=(Broken,)))
async def hopeless() -> None:
    raise Broken("never")


@romulus.step(pool="gpu", timeout=0.05, retry=romulus.Retry(max_attempts=1))
async def slow() -> None:
    await asyncio.Event().wait()


@romulus.step(pool="gpu", retry=romulus.Retry(initial=0.01))
async def gated() -> int:
    attempt = romulus.current_attempt()
    began.put_nowait(attempt)
    await gate.wait()
    return attempt.number


@romulus.step(pool="gpu")
async def beating() -> None:
    attempt = romulus.current_attempt()
    began.put_nowait(attempt)
    try:
        while True:
            attempt.heartbeat()
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        if attempt.cancelled:
            unwanted.append(attempt.number)
        raise


@romulus.step(pool="gpu", retry=romulus.Retry(max_attempts=1))
async def once() -> None:
    began.put_nowait(romulus.current_attempt())
    await gate.wait()


@romulus.workflow
async def doubles(n: int) -> list[int]:
    return list(await asyncio.gather(*(double(i) for i in range(n))))


@romulus.workflow
def doubles_in_line(n: int) -> int:
    return double_in_thread(double_in_thread(n))


@romulus.workflow
async def mixed(n: int) -> int:
    return await double(await plain(await double(n)))


@romulus.workflow
async def thirds(n: int) -> str:
    return await third_time(n)


@romulus.workflow
async def fails() -> str:
    try:
        await hopeless()
    except Broken as error:
        return f"Broken: {error}"
    return "?"


@romulus.workflow
async def too_slow() -> str:
    try:
        await slow()
    except romulus.StepTimeout as error:
        return str(error)
    return "?"


@romulus.workflow
async def gates() -> int:
    return await gated()


@romulus.workflow
async def gives_up() -> str:
    task = asyncio.ensure_future(beating())
    await romulus.wait_for_event("enough")
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "given up"
    return "?"


@romulus.workflow
async def onces() -> None:
    await once()


FLOWS = (doubles, doubles_in_line, mixed, thirds, fails, too_slow, gates, gives_up, onces)


async def both(w: World) -> tuple[Worker, Worker]:
    """Start a worker of runs and one of the pool."""
    return await w.worker(), await w.worker(pools=GPU)


def left(w: World) -> list[Any]:
    return [*w.rows("SELECT * FROM pool_attempts"), *w.rows("SELECT * FROM inbox"), *w.rows("SELECT * FROM attempts")]


async def test_a_run_waits_unclaimed_until_a_worker_of_the_pool_comes_and_its_description_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        runs = await w.worker()
        handle = await w.client.start(doubles, 3)
        await w.until(handle.id, RunStatus.WAITING)

        described = await handle.describe()
        assert described.owner is None
        assert [(it.kind, it.name, it.state, it.attempt, it.pool, it.unserved) for it in described.pending] == [
            ("step", "double", "queued", 1, "gpu", True)
        ] * 3
        assert not runs.engine.executor.running

        await w.worker(pools=GPU)
        assert await handle.result(timeout=20) == [0, 2, 4]
        assert left(w) == []


async def test_a_worker_of_the_pool_alone_claims_no_runs(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        gpu = await w.worker(pools=GPU)
        other = await w.client.start(doubles, 1)
        runs = await w.worker()
        assert await other.result(timeout=20) == [0]
        claims = w.rows("SELECT DISTINCT fence FROM journal")
        assert len(claims) == 1
        assert gpu.memory.active == {}
        assert [(worker.workflows, worker.pools) for worker in await w.client.workers()] == [
            ((), GPU), (tuple(f"{flow.spec.name} 1" for flow in FLOWS), ("default",))
        ]  # fmt: skip
        assert runs.engine.pools.pools == ()


async def test_a_run_is_stranded_although_a_worker_of_a_pool_has_its_code(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker(pools=GPU)
        assert (await (await w.client.start(doubles, 1)).describe()).stranded


async def test_one_worker_may_serve_both(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker(pools=("default", "gpu"), concurrency=1)
        assert await (await w.client.start(mixed, 1)).result(timeout=20) == 6
        assert await (await w.client.start(doubles, 20)).result(timeout=20) == [2 * n for n in range(20)]


async def test_a_def_workflow_and_a_def_step_of_a_pool(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await both(w)
        assert await (await w.client.start(doubles_in_line, 3)).result(timeout=20) == 12


async def test_more_attempts_than_one_transition_may_queue_all_get_there(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker(turn_pool_max=7)
        await w.worker(pools=GPU, turn_pool_max=7)
        assert await (await w.client.start(doubles, 40)).result(timeout=20) == [2 * n for n in range(40)]


async def test_a_failed_attempt_is_tried_again_and_finds_the_last_heartbeat(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await both(w)
        handle = await w.client.start(thirds, 3)
        assert await handle.result(timeout=20) == "attempt 3 found {'tried': 2}"
        (entry,) = await handle.history()
        assert (entry.kind, entry.name, entry.attempt) == ("step", "third_time", 3)
        assert left(w) == []


async def test_the_last_attempts_failure_is_raised_in_the_run(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await both(w)
        with pytest.raises(romulus.RunFailed, match="Broken: attempt 3"):
            await (await w.client.start(thirds, 9)).result(timeout=20)


async def test_what_is_not_retryable_is_not_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await both(w)
        handle = await w.client.start(fails)
        assert await handle.result(timeout=20) == "Broken: never"
        assert [entry.attempt for entry in await handle.history()] == [1]


async def test_the_timeout_of_the_step_holds_in_the_pool(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await both(w)
        assert "ran past its timeout" in await (await w.client.start(too_slow)).result(timeout=20)


async def test_the_run_waits_unclaimed_while_the_pool_works_and_the_attempt_has_a_fence_of_its_own(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(gates)
        attempt = await asyncio.wait_for(began.get(), 20)
        described = await handle.describe()
        (pending,) = described.pending
        assert (described.status, described.owner) == (RunStatus.WAITING, None)
        assert (pending.state, pending.owner, pending.unserved) == ("claimed", gpu.id, False)
        assert attempt.fence > described.fence
        gate.set()
        assert await handle.result(timeout=20) == 1


async def test_the_runs_worker_may_die_while_the_pool_works(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        runs, _ = await both(w)
        handle = await w.client.start(gates)
        await asyncio.wait_for(began.get(), 20)
        await w.kill(runs)
        gate.set()
        await eventually(lambda: w.rows("SELECT state FROM pool_attempts") == [("reported",)])
        await w.worker()
        assert await handle.result(timeout=20) == 1
        assert began.empty()


async def test_an_attempt_whose_worker_dies_is_lost_and_the_next_one_has_the_next_number(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(gates)
        first = await asyncio.wait_for(began.get(), 20)
        await w.kill(gpu)
        await w.worker(pools=GPU)
        second = await asyncio.wait_for(began.get(), 20)
        assert (first.number, second.number) == (1, 2)
        assert second.fence > first.fence
        assert second.idempotency_key == first.idempotency_key
        gate.set()
        assert await handle.result(timeout=20) == 2


async def test_a_step_that_allows_one_attempt_holds_the_run_when_that_is_lost_and_goes_on_when_released(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(onces)
        await asyncio.wait_for(began.get(), 20)
        await w.kill(gpu)
        held = await w.until(handle.id, RunStatus.HELD)
        assert held.hold_reason is not None
        assert "attempt 1 of step 'once' was lost" in held.hold_reason
        assert w.rows("SELECT * FROM pool_attempts") == []
        (pending,) = held.pending
        assert (pending.name, pending.state, pending.attempt, pending.due) == ("once", "held", 1, None)

        await w.worker(pools=GPU)
        await handle.release()
        assert (await asyncio.wait_for(began.get(), 20)).number == 2
        gate.set()
        await handle.result(timeout=20)


async def test_losses_are_counted_up_to_a_hold(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        handle = await w.client.start(gates)
        for number in range(1, 6):
            gpu = await w.worker(pools=GPU)
            assert (await asyncio.wait_for(began.get(), 20)).number == number
            await w.kill(gpu)
        held = await w.until(handle.id, RunStatus.HELD)
        assert "5 attempts of it were lost" in (held.hold_reason or "")


async def test_the_late_result_of_a_lost_attempt_is_refused_and_kept(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        gpu = await w.worker(pools=GPU, lease=3_600_000_000)  # it asks about its attempts, and renews, a few times an hour
        handle = await w.client.start(gates)
        first = await asyncio.wait_for(began.get(), 20)
        with w.database() as database:
            database.execute("UPDATE pool_attempts SET lease_until = 0")
        second = await asyncio.wait_for(began.get(), 20)
        gate.set()
        assert await handle.result(timeout=20) == second.number == 2
        await eventually(lambda: not gpu.engine.pools.busy)
        (kept,) = await handle.evidence()
        assert (kept.kind, kept.owner, kept.fence, kept.detail["attempt"]) == ("late_attempt", gpu.id, first.fence, 1)
        assert [entry.attempt for entry in await handle.history()] == [2]


async def test_a_worker_that_is_found_dead_drops_its_attempts_and_serves_the_pool_afresh(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        before = gpu.id
        handle = await w.client.start(gates)
        first = await asyncio.wait_for(began.get(), 20)
        with w.database() as database:
            database.execute("UPDATE workers SET dead = true WHERE id = ?", (before,))
        second = await asyncio.wait_for(began.get(), 20)
        await eventually(lambda: first.cancelled)
        gate.set()
        assert (await handle.result(timeout=20), second.number, gpu.id == before) == (2, 2, False)


async def test_an_attempt_that_its_worker_has_forgotten_is_tried_again_when_its_lease_is_over(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(gates)
        await asyncio.wait_for(began.get(), 20)
        gpu.engine.pools.drop()
        assert (await asyncio.wait_for(began.get(), 20)).number == 2
        gate.set()
        assert await handle.result(timeout=20) == 2


async def test_an_attempt_that_the_code_gave_up_is_deleted_and_its_holder_learns_it_at_its_next_heartbeat(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        await w.worker(pools=GPU, beat_every=10_000)
        handle = await w.client.start(gives_up)
        attempt = await asyncio.wait_for(began.get(), 20)
        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "given up"
        assert w.rows("SELECT * FROM pool_attempts") == []
        await eventually(lambda: unwanted == [1])
        assert attempt.cancelled


async def test_a_run_that_is_terminated_leaves_no_attempt_and_its_holder_is_told(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        await w.worker(pools=GPU, beat_every=10_000)
        handle = await w.client.start(gives_up)
        await asyncio.wait_for(began.get(), 20)
        await handle.terminate()
        await eventually(lambda: unwanted == [1])
        assert left(w) == []


async def test_heartbeats_are_stored_at_intervals_and_shown(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        await w.worker(pools=GPU, beat_every=10_000)
        handle = await w.client.start(gives_up)
        await asyncio.wait_for(began.get(), 20)
        await eventually(lambda: w.rows("SELECT 1 FROM pool_attempts WHERE beat_at IS NOT NULL") != [])
        step = next(it for it in (await handle.describe()).pending if it.kind == "step")
        assert step.heartbeat_at is not None


async def test_a_pool_worker_that_stops_lets_its_attempts_finish(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(gates)
        await asyncio.wait_for(began.get(), 20)
        stopping = asyncio.ensure_future(w.stop(gpu))
        await eventually(lambda: gpu.stopping)
        gate.set()
        await stopping
        assert await handle.result(timeout=20) == 1


async def test_an_attempt_cut_off_by_a_stop_counts_against_no_limit(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        handle = await w.client.start(gates)
        for number in range(1, 8):
            gpu = await w.worker(pools=GPU)
            assert (await asyncio.wait_for(began.get(), 20)).number == number
            await w.stop(gpu, grace=0)
        gate.set()
        await w.worker(pools=GPU)
        assert await handle.result(timeout=20) == 8


async def test_a_step_that_allows_one_attempt_holds_the_run_when_a_stop_cuts_it_off(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        handle = await w.client.start(onces)
        await asyncio.wait_for(began.get(), 20)
        await w.stop(gpu, grace=0)
        assert "attempt 1 of step 'once' was lost" in ((await w.until(handle.id, RunStatus.HELD)).hold_reason or "")


async def test_an_attempt_that_found_no_slot_is_given_back_unbegun(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        gpu = await w.worker(pools=GPU, concurrency=2)
        handles = [await w.client.start(gates.options(id=f"r{n}")) for n in range(2)]
        for _ in handles:
            await asyncio.wait_for(began.get(), 20)
        gpu.engine.slots.free = 1  # as if another attempt of this worker's had taken it between look and claim
        gpu.engine.slots.take = lambda: False  # type: ignore[method-assign]
        last = await w.client.start(onces)
        await eventually(lambda: len(w.rows("SELECT 1 FROM pool_attempts WHERE state = 'claimed'")) == 3)
        await w.stop(gpu, grace=0)
        await w.worker(pools=GPU)
        gate.set()
        assert [await handle.result(timeout=20) for handle in handles] == [2, 2]
        await last.result(timeout=20)
        assert [entry.attempt for entry in await last.history()] == [1]


async def test_a_worker_without_the_step_leaves_it_to_one_that_has_it(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        await w.worker()
        bare = await w.worker(romulus.App("sqlite://", workflows=[], steps=[double_in_thread]), pools=GPU)
        handle = await w.client.start(doubles, 2)
        await w.until(handle.id, RunStatus.WAITING)
        assert [it.state for it in (await handle.describe()).pending] == ["queued"] * 2
        assert not bare.engine.pools.busy
        await w.worker(pools=GPU)
        assert await handle.result(timeout=20) == [0, 2]


async def test_a_run_is_rebuilt_from_its_record_without_queueing_anything_twice(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as w:
        runs = await w.worker(cache_max=0)
        handle = await w.client.start(gives_up)
        await w.until(handle.id, RunStatus.WAITING)
        await w.stop(runs)
        runs = await w.worker(cache_max=0)
        await w.worker(pools=GPU, beat_every=10_000)
        assert (await asyncio.wait_for(began.get(), 20)).number == 1
        await handle.send_event("enough")
        assert await handle.result(timeout=20) == "given up"
        assert began.empty()


async def test_arguments_that_are_too_large_to_be_stored_fail_the_step(tmp_path: Path) -> None:
    async with world(tmp_path, large, value_max_bytes=2_000) as w:
        await both(w)
        assert await (await w.client.start(large)).result(timeout=20) == "ValueTooLarge"


async def test_a_result_that_cannot_be_stored_fails_the_step_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, swelling, value_max_bytes=2_000) as w:
        await both(w)
        handle = await w.client.start(swelling)
        assert await handle.result(timeout=20) == "ValueTooLarge"
        assert [entry.attempt for entry in await handle.history()] == [1]


class Away:
    """A codec whose key is away at times."""

    away = False

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        if self.away:
            raise ConnectionError("the key is away")
        return data


async def test_an_attempt_stays_queued_while_its_arguments_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    codec = Away()
    async with world(tmp_path, doubles, codec=codec) as w:
        await w.worker()
        handle = await w.client.start(doubles, 1)
        await w.until(handle.id, RunStatus.WAITING)
        codec.away = True
        await w.worker(pools=GPU, unread_pause=10_000)
        await eventually(lambda: "is left to other workers" in caplog.text)
        codec.away = False
        assert await handle.result(timeout=20) == [0]
        assert [entry.attempt for entry in await handle.history()] == [1]


@romulus.step(pool="gpu")
async def echo(text: str) -> str:
    return text


@romulus.step(pool="gpu")
async def swell(times: int) -> str:
    return "x" * times


@romulus.workflow
async def large() -> str:
    try:
        return await echo("x" * 5_000)
    except romulus.ValueTooLarge:
        return "ValueTooLarge"


@romulus.workflow
async def swelling() -> str:
    try:
        return await swell(5_000)
    except romulus.ValueTooLarge:
        return "ValueTooLarge"


async def test_a_report_on_an_attempt_that_another_transaction_holds_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with world(tmp_path, *FLOWS) as w:
        _, gpu = await both(w)
        report_pool, asked = gpu.store.report_pool, 0

        async def report(reports: Any) -> Any:
            nonlocal asked
            asked += 1
            return [None] * len(reports) if asked == 1 else await report_pool(reports)

        monkeypatch.setattr(gpu.store, "report_pool", report)
        assert await (await w.client.start(doubles, 3)).result(timeout=20) == [0, 2, 4]
        assert asked > 1
        assert left(w) == []
