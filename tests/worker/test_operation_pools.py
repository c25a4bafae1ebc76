"""Operations of pools: sent, looked up and settled only by workers that serve the pool, while their run waits without a claim."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Applied, LookupResult, NotApplied, NotSent, Operation, Rejected, Retry
from romulus.core.machine import RunStatus
from romulus.worker.operations import claimed
from tests.worker.rig import World, eventually, url_of, world

SIDE = ("side",)
QUICK = Retry(max_attempts=3, initial=0.01, jitter=0)


class Outside:
    """The provider: what it was sent, by whom, and what it says."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, int]] = []  # (operation ID, attempt)
        self.applied: list[str] = []
        self.ways: list[str] = []  # of the next sends; then "answer"
        self.gate = asyncio.Event()

    async def send(self, op: Operation) -> str:
        self.sends.append((op.id, op.attempt))
        way = self.ways.pop(0) if self.ways else "answer"
        if way == "refuse":
            raise Rejected("no such customer")
        if way == "unreachable":
            raise NotSent("connection refused")
        if way == "gated":
            await self.gate.wait()
        if op.id not in self.applied:
            self.applied.append(op.id)
        if way == "lost after":
            raise ConnectionError("no answer")
        return f"done {op.id[:4]}"


outside = Outside()


@pytest.fixture(autouse=True)
def fresh() -> None:
    global outside
    outside = Outside()


@romulus.operation(pool="side", timeout=60, retry=QUICK)
async def charge(op: Operation, customer: str) -> str:
    return await outside.send(op)


@charge.lookup
async def find(op: Operation, customer: str) -> LookupResult[str]:
    return Applied(f"found {op.id[:4]}") if op.id in outside.applied else NotApplied()


@romulus.operation(pool="side", timeout=60, retry=QUICK)
def in_thread(op: Operation) -> str:
    outside.sends.append((op.id, op.attempt))
    return f"done {op.id[:4]}"


@romulus.workflow
async def charges(count: int) -> list[str]:
    return await asyncio.gather(*(charge(str(n)) for n in range(count)))


@romulus.workflow
async def tries() -> str:
    try:
        return await charge("ada")
    except (NotSent, romulus.OperationRejected) as error:
        return f"{type(error).__name__}: {error}"


@romulus.workflow
def sync() -> str:
    return in_thread()


@romulus.workflow
async def gives_up() -> str:
    pending = asyncio.ensure_future(charge("ada"))
    await romulus.wait_for_event("give up")
    pending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await pending
    return "gave up"


FLOWS = (charges, tries, sync, gives_up)


def states(here: World) -> list[tuple[Any, ...]]:
    return here.rows("SELECT state, count(*) FROM operations GROUP BY state ORDER BY state")


def kinds(here: World) -> list[str]:
    return [kind for (kind,) in here.rows("SELECT kind FROM operation_notes ORDER BY key")]


async def begun(here: World, flow: Any, *given: Any) -> Any:
    """Start a run under a worker that has no pool, until it waits for its operations."""
    await here.worker()
    handle = await here.client.start(flow.options(id="r"), *given)
    await here.until("r", RunStatus.WAITING)
    return handle


async def test_only_a_worker_of_the_pool_sends_and_the_run_waits_without_a_claim(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 3)
        assert (states(here), outside.sends) == ([("queued", 3)], [])
        await here.worker(pools=SIDE)
        assert [answer[:5] for answer in await handle.result(timeout=20)] == ["done "] * 3
        assert here.rows("SELECT DISTINCT state, sends, pool, owner, due FROM operations") == [("confirmed", 1, "side", None, None)]
        assert len(outside.applied) == 3


async def test_a_worker_of_both_pools_does_it_all_in_both_colours(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        await here.worker(pools=("default", "side"), concurrency=1)
        handle = await here.client.start(sync.options(id="r"))
        assert (await handle.result(timeout=20)).startswith("done ")


async def test_it_shows_that_nobody_serves_the_pool(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 1)
        (pending,) = (await handle.describe()).pending
        assert (pending.kind, pending.state, pending.pool, pending.unserved) == ("operation", "queued", "side", True)
        (listed,) = await here.client.operations()
        assert listed.pool == "side"


@pytest.mark.parametrize(
    ("ways", "result", "sends"),
    [
        (["refuse"], "OperationRejected: no such customer", 1),
        (["unreachable", "unreachable"], "done ", 3),
        (["unreachable"] * 3, "NotSent: connection refused", 3),
        (["lost after"], "found ", 1),
    ],
)
async def test_each_way_to_end_is_told_to_the_run(tmp_path: Path, ways: list[str], result: str, sends: int) -> None:
    outside.ways = list(ways)
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, tries)
        await here.worker(pools=SIDE)
        assert (await handle.result(timeout=20)).startswith(result)
        assert len(outside.sends) == sends
        assert len({operation for operation, _ in outside.sends}) == 1


async def test_a_lost_answer_is_looked_up_by_the_pool_alone(tmp_path: Path) -> None:
    outside.ways = ["gated"]
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 1)
        first = await here.worker(pools=SIDE)
        await eventually(lambda: len(outside.sends) == 1)
        outside.applied.append(outside.sends[0][0])
        await here.kill(first)
        await eventually(lambda: states(here) == [("unknown", 1)])  # given up by the other worker, which does not serve the pool
        assert "lookup: applied" not in kinds(here)
        await here.worker(pools=SIDE)
        assert await handle.result(timeout=20) == [f"found {outside.sends[0][0][:4]}"]
        assert len(outside.sends) == 1


async def test_of_many_queued_a_kill_makes_only_the_armed_ones_unknown(tmp_path: Path) -> None:
    outside.ways = ["gated"] * 3
    async with world(tmp_path, *FLOWS) as here:
        await begun(here, charges, 30)
        worker = await here.worker(pools=SIDE, concurrency=3)
        await eventually(lambda: len(outside.sends) == 3)
        assert states(here) == [("armed", 3), ("queued", 27)]
        outside.applied += [operation for operation, _ in outside.sends]
        await here.kill(worker)
        await eventually(lambda: states(here) == [("queued", 27), ("unknown", 3)])
        outside.gate.set()
        await here.worker(pools=SIDE)
        assert len(await here.client.get("r", charges).result(timeout=20)) == 30
        assert kinds(here).count("lost") == 3
        assert len(outside.applied) == 30


async def test_a_deploy_of_the_pools_worker_makes_none_unknown(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        await begun(here, charges, 60)
        worker = await here.worker(pools=SIDE, concurrency=1)
        await eventually(lambda: len(outside.sends) >= 3)
        await here.stop(worker)
        assert {state for state, _ in states(here)} <= {"confirmed", "queued"}
        await here.worker(pools=SIDE)
        assert len(await here.client.get("r", charges).result(timeout=20)) == 60
        assert len(outside.sends) == len(outside.applied) == 60


async def test_a_queued_one_is_withdrawn_and_then_nobody_sends_it(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, gives_up)
        await here.client.send_event("give up", correlation_id="r")
        assert await handle.result(timeout=20) == "gave up"
        worker = await here.worker(pools=SIDE)
        assert here.rows("SELECT state, due, owner FROM operations") == [("withdrawn", None, None)]
        await here.stop(worker)
        assert outside.sends == []


async def test_a_cancellation_while_it_is_sent_is_delivered_once_it_is_settled(tmp_path: Path) -> None:
    outside.ways = ["gated"]
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, gives_up)
        await here.worker(pools=SIDE)
        await eventually(lambda: len(outside.sends) == 1)
        await here.client.send_event("give up", correlation_id="r")
        await eventually(lambda: [kind for (kind,) in here.rows("SELECT kind FROM journal ORDER BY position")] == ["wait"])
        outside.gate.set()
        assert await handle.result(timeout=20) == "gave up"
        assert [kind for (kind,) in here.rows("SELECT kind FROM journal ORDER BY position")] == ["wait", "operation"]
        assert states(here) == [("confirmed", 1)]


@pytest.mark.parametrize("armed", [False, True])
async def test_it_outlives_its_run_only_where_it_was_armed(tmp_path: Path, armed: bool) -> None:
    outside.ways = ["gated"]
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 1)
        if armed:
            await here.worker(pools=SIDE)
            await eventually(lambda: len(outside.sends) == 1)
        await handle.terminate("enough")
        outside.gate.set()
        await eventually(lambda: states(here) == [("confirmed" if armed else "withdrawn", 1)])
        assert here.rows("SELECT awaited, due FROM operations") == [(0, None)]


async def test_the_worker_of_the_run_may_be_killed_while_the_pool_sends(tmp_path: Path) -> None:
    outside.ways = ["gated"]
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 2)
        await here.worker(pools=SIDE)
        await eventually(lambda: len(outside.sends) == 2)
        await here.kill(here.workers[0])
        outside.gate.set()
        await here.worker()
        assert len(await handle.result(timeout=20)) == 2
        assert len(outside.sends) == 2


async def test_a_slot_comes_back_whatever_a_send_comes_to(tmp_path: Path) -> None:
    outside.ways = ["refuse", "unreachable", "lost after", "unreachable", "unreachable", "answer"]
    async with world(tmp_path, *FLOWS) as here:
        for n in range(4):
            await here.client.start(tries.options(id=f"t{n}"))
        worker = await here.worker(pools=("default", "side"), concurrency=1)
        for n in range(4):
            await here.client.get(f"t{n}", tries).result(timeout=20)
        await eventually(lambda: worker.engine.slots.free == 1)


# ---- without the code ------------------------------------------------------------------------------------


@romulus.operation(timeout=5, retry=QUICK, lookup_retry=QUICK)
async def plain(op: Operation) -> str:
    return await outside.send(op)


@plain.lookup
async def find_plain(op: Operation) -> LookupResult[str]:
    return Applied(f"found {op.id[:4]}") if op.id in outside.applied else NotApplied()


@romulus.workflow
async def writes() -> str:
    return await plain()


@romulus.workflow
async def other() -> None: ...


@contextlib.contextmanager
def without_lookup() -> Iterator[None]:
    lookup, plain.spec.extras.lookup = plain.spec.extras.lookup, None
    try:
        yield
    finally:
        plain.spec.extras.lookup = lookup


def without_function(here: World) -> romulus.App:
    return romulus.App(url_of(here.path), workflows=[other])


async def lost(here: World) -> None:
    """Leave an armed operation of a killed worker behind."""
    outside.ways = ["gated"]
    first = await here.worker()
    await here.client.start(writes.options(id="w"))
    await eventually(lambda: len(outside.sends) == 1)
    outside.applied.append(outside.sends[0][0])
    await here.kill(first)


async def hold_reason(here: World) -> str:
    await eventually(lambda: states(here) == [("held", 1)])
    (held,) = await here.client.operations(state="held")
    return held.hold_reason or ""


async def test_an_operation_whose_function_no_worker_has_is_held_with_the_remedy_until_one_has_it_again(tmp_path: Path) -> None:
    async with world(tmp_path, writes) as here:
        await lost(here)
        await here.worker(without_function(here), code_patience=50_000)
        reason = await hold_reason(here)
        assert "no live worker has its function 'plain': deploy the code that has it, and it goes on by itself" in reason
        await here.worker()
        assert (await here.client.get("w", writes).result(timeout=20)).startswith("found ")
        assert kinds(here) == ["lost", "no code", "code is back", "lookup: applied"]
        assert len(outside.sends) == 1


async def test_a_missing_lookup_holds_with_the_remedy_until_a_worker_has_it_again(tmp_path: Path) -> None:
    async with world(tmp_path, writes) as here:
        await lost(here)
        with without_lookup():
            worker = await here.worker(code_patience=50_000)
        assert "no live worker has the lookup of 'plain' any more: deploy the code that has it" in await hold_reason(here)
        run = await here.until("w", RunStatus.HELD)
        assert "no live worker has the lookup" in (run.hold_reason or "")
        await here.stop(worker)
        await here.worker()
        assert (await here.client.get("w", writes).result(timeout=20)).startswith("found ")


async def test_a_pool_that_nobody_serves_any_more_holds_what_is_unknown_and_leaves_what_is_queued(tmp_path: Path) -> None:
    outside.ways = ["gated"]
    async with world(tmp_path, *FLOWS) as here:
        handle = await begun(here, charges, 2)
        first = await here.worker(pools=SIDE, concurrency=1)
        await eventually(lambda: len(outside.sends) == 1)
        outside.applied.append(outside.sends[0][0])
        await here.kill(first)
        await here.worker(code_patience=50_000)
        await eventually(lambda: states(here) == [("held", 1), ("queued", 1)])
        (held,) = await here.client.operations(state="held")
        assert "no live worker serves its pool 'side' with the code of 'charge': start one" in (held.hold_reason or "")
        await here.worker(pools=SIDE)
        assert len(await handle.result(timeout=20)) == 2


async def test_a_person_may_resolve_what_is_held_for_its_code(tmp_path: Path) -> None:
    async with world(tmp_path, writes) as here:
        await lost(here)
        await here.worker(without_function(here), code_patience=50_000)
        await hold_reason(here)
        (held,) = await here.client.operations(state="held")
        await here.client.resolve_operation(held.id, Applied("seen"), reason="looked", reviewer="ada")
        await here.worker()
        assert await here.client.get("w", writes).result(timeout=20) == "seen"


async def test_a_worker_without_the_code_holds_nothing_while_another_one_has_it(tmp_path: Path) -> None:
    async with world(tmp_path, writes) as here:
        await lost(here)
        await here.worker(lookups_per_second_max=1)
        await here.worker(without_function(here), code_patience=1)
        assert (await here.client.get("w", writes).result(timeout=20)).startswith("found ")
        assert "no code" not in kinds(here)


async def test_more_than_one_transition_may_record_are_recorded_one_transition_after_the_other(tmp_path: Path) -> None:
    async with world(tmp_path, *FLOWS) as here:
        await here.worker(turn_intents_max=5)
        handle = await here.client.start(charges.options(id="r"), 12)
        await eventually(lambda: states(here) == [("queued", 12)])
        await here.worker(pools=SIDE)
        assert len(await handle.result(timeout=20)) == 12


async def test_a_slot_comes_back_where_its_arming_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def refused(_: Any, row: Any, *given: Any) -> None:
        asked.append(row.id)

    monkeypatch.setattr(claimed.ClaimedSends, "_arm", refused)
    async with world(tmp_path, *FLOWS) as here:
        await begun(here, charges, 1)
        worker = await here.worker(pools=SIDE, concurrency=1)
        await eventually(lambda: len(asked) == 1)
        await eventually(lambda: worker.engine.slots.free == 1)
        assert outside.sends == []
