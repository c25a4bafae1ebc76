"""What the code gave up, or was about to be told, when it was held, refused or stopped: none is awaited for good, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import NotSent, Operation, Rejected, Retry
from romulus.core.machine import RunStatus
from romulus.store.contract import BatchRejected
from tests.worker.rig import World, eventually, world
from tests.worker.test_undelivered import (
    CALLS,
    ENDED,
    GATES,
    Between,
    _fresh,
    a,
    b,
    begun,
    beside_a_failing_one,
    c,
    d,
    never,
    once_a_transition_has_entries,
    taken_together,
)  # fmt: skip

fresh = _fresh
ASKED: list[str] = []


@romulus.operation(timeout=60, on_cancel="abandon")
async def writes(op: Operation, how: str) -> str:
    CALLS.append(("sent", op.attempt))
    await GATES["sent"].wait()
    ENDED.append("sent")
    if how == "rejected":
        raise Rejected("no")
    return how


@writes.lookup
async def finds(op: Operation, how: str) -> romulus.LookupResult[str]:
    ASKED.append(op.id)
    return romulus.Applied(how)


@romulus.operation(timeout=60, retry=Retry(max_attempts=1))
async def never_leaves(op: Operation) -> str:
    await GATES["sent"].wait()
    raise NotSent("no route")


@romulus.operation(timeout=60, pool="payments", on_cancel="abandon")
async def writes_elsewhere(op: Operation) -> str:
    return "written"


@romulus.step(pool="gpu")
async def trains() -> None:
    CALLS.append(("trained", 1))


@romulus.step(retry=Retry(max_attempts=2, initial=60, jitter=0))
async def fails() -> None:
    raise ValueError("not now")


@romulus.workflow
async def sleeps() -> None:
    await romulus.wait_for_event("never")


def beside_a(other: str) -> Coroutine[Any, Any, str]:
    return writes("done") if other == "op" else b() if other == "b" else c()


@romulus.workflow
async def races(other: str) -> str:
    first, second = asyncio.ensure_future(a()), asyncio.ensure_future(beside_a(other))
    result = await first
    second.cancel()
    return result + await d()


@pytest.mark.parametrize("other", ["b", "c"])
async def test_how_an_attempt_ended_that_the_code_gave_up_in_the_same_turn_is_left_out(tmp_path: Path, other: str) -> None:
    async with world(tmp_path, races) as w:
        worker = await w.worker()
        handle = await w.client.start(races.options(id="r"), other)
        await begun("a", other)
        await taken_together(worker, "a", other)
        await eventually(lambda: ("d", 1) in CALLS or w.rows("SELECT 1 FROM runs WHERE status <> 'running'") != [])
        assert w.rows("SELECT count(*) FROM attempts") == [(0,)]
        GATES["d"].set()

        await w.until("r", RunStatus.SUCCEEDED, RunStatus.HELD)
        assert [entry.name for entry in await handle.history()] == ["a", "d"]
    assert CALLS.count((other, 2)) == 0


async def test_the_answer_to_a_send_that_the_code_gave_up_in_the_same_turn_is_reported(tmp_path: Path) -> None:
    ASKED.clear()
    async with world(tmp_path, races) as w:
        worker = await w.worker()
        await w.client.start(races.options(id="r"), "op")
        await begun("a", "sent")
        await taken_together(worker, "a", "sent")
        GATES["d"].set()
        await w.until("r", RunStatus.SUCCEEDED, RunStatus.HELD)

        await asyncio.wait_for(eventually(lambda: w.rows("SELECT state, awaited FROM operations") == [("confirmed", 0)]), 20)
    assert ASKED == []


async def test_a_failure_in_hand_counts_as_one_when_the_run_is_held(tmp_path: Path) -> None:
    async with world(tmp_path, beside_a_failing_one) as w:
        worker = await w.worker(history_max=1, turn_entries_max=1)
        handle = await w.client.start(beside_a_failing_one.options(id="r"))
        await begun("a", "c")
        await taken_together(worker, "a", "c")
        await w.until("r", RunStatus.HELD)
        await w.stop(worker)
        await w.worker()
        await handle.release()

        assert await handle.result(timeout=20) == "a c"
    assert sorted(CALLS) == [("a", 1), ("c", 1), ("c", 2)]


# ---- given up in an advance of which the outcomes alone were recorded ------------------------------------


def left(kind: str) -> Coroutine[Any, Any, Any]:
    match kind:
        case "wait":
            return romulus.wait_for_event("never")
        case "pool":
            return trains()
        case "back-off":
            return fails()
        case "queued":
            return writes_elsewhere()
        case "armed":
            return writes("done")
        case _:
            return sleeps()


@romulus.workflow
async def lets_go(kind: str) -> str:
    beside, other = asyncio.ensure_future(left(kind)), asyncio.ensure_future(d())
    result = await a()
    beside.cancel()
    return result + await b() + await other


OPEN = {  # kind: what shows that the record has it, and what it is once it is given up
    "wait": ("SELECT count(*) FROM waits", 1, 0),
    "pool": ("SELECT count(*) FROM pool_attempts", 1, 0),
    "back-off": ("SELECT count(*) FROM attempts", 1, 0),
    "queued": ("SELECT count(*) FROM operations WHERE state = 'queued'", 1, 0),
    "armed": ("SELECT count(*) FROM operations WHERE awaited", 1, 0),
    "child": ("SELECT count(*) FROM runs WHERE workflow = 'sleeps' AND cancel_seq > 0", 0, 1),
}


@pytest.mark.parametrize("ended", ["ad", "da"])  # the first is delivered before the run is held, the second is recorded alone
@pytest.mark.parametrize("kind", OPEN)
async def test_what_the_code_gave_up_where_only_outcomes_were_recorded_is_given_up_when_it_is_taken_up(
    tmp_path: Path, kind: str, ended: str
) -> None:
    query, open_, given_up = OPEN[kind]
    async with world(tmp_path, lets_go, sleeps) as w:
        worker = await w.worker(history_max=1, turn_entries_max=1)
        handle = await w.client.start(lets_go.options(id="r"), kind)
        await begun("a", "d")
        await recorded(w, kind)
        await eventually(lambda: [driver.in_flight for driver in worker.memory.active.values()] == [None])
        await taken_together(worker, *ended)
        await w.until("r", RunStatus.HELD)
        assert w.rows(query) == [(open_,)]
        await w.stop(worker, grace=0)
        await w.worker()
        await handle.release()
        await begun("b")
        await eventually(lambda: w.rows(query) == [(given_up,)])

        GATES["b"].set()
        assert await handle.result(timeout=20) == "abd"


@pytest.mark.parametrize("kind", OPEN)
async def test_what_the_code_gives_up_is_given_up_in_the_record_with_the_outcome_that_made_it(tmp_path: Path, kind: str) -> None:
    query, _, given_up = OPEN[kind]
    async with world(tmp_path, lets_go, sleeps) as w:
        await w.worker()
        handle = await w.client.start(lets_go.options(id="r"), kind)
        await begun("a", "d")
        await recorded(w, kind)
        GATES["a"].set()
        await begun("b")
        await eventually(lambda: w.rows(query) == [(given_up,)])
        GATES["b"].set()
        GATES["d"].set()
        assert await handle.result(timeout=20) == "abd"


async def recorded(w: World, kind: str) -> None:
    """Wait until the record has what runs beside `a`."""
    about = {"armed": "SELECT 1 FROM operations WHERE state = 'armed'", "child": "SELECT 1 FROM runs WHERE status = 'waiting'"}
    await eventually(lambda: w.rows(about.get(kind, OPEN[kind][0].replace("count(*)", "1"))) != [])


# ---- refused, or cut off by a stop ------------------------------------------------------------------------


@romulus.workflow
async def writes_alone(how: str) -> str:
    try:
        return await (never_leaves() if how == "unsent" else writes(how))
    except (romulus.OperationRejected, NotSent) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("how", "state", "result"),
    [("done", "confirmed", "done"), ("rejected", "rejected", "OperationRejected: no"), ("unsent", "not sent", "NotSent: no route")],
)
async def test_how_a_send_ended_whose_transition_is_refused_is_reported_as_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, state: str, result: str
) -> None:
    async with world(tmp_path, writes_alone) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        GATES["store"].set()
        GATES["sent"].set()
        handle = await w.client.start(writes_alone, how)

        assert await handle.result(timeout=20) == result
        assert len(between.refused) == 1
        assert w.rows("SELECT state FROM operations") == [(state,)]
    assert len(CALLS) <= 1


@romulus.workflow
async def writes_after_a() -> str:
    return await a() + await writes("done")


async def test_an_operation_armed_by_a_commit_that_a_stop_overtakes_is_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ASKED.clear()
    async with world(tmp_path, writes_after_a) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, never)
        handle = await w.client.start(writes_after_a)
        await begun("a")
        GATES["a"].set()
        await eventually(lambda: between.waits == 1)
        stopping = asyncio.ensure_future(w.stop(worker))
        await eventually(lambda: worker.stopping)
        GATES["store"].set()
        await stopping
        assert w.rows("SELECT state FROM operations") == [("queued",)]

        GATES["sent"].set()
        await w.worker()
        assert await handle.result(timeout=20) == "adone"
    assert (CALLS, ASKED) == ([("a", 1), ("sent", 1)], [])


@romulus.operation(timeout=60, pool="payments")
async def refunds(op: Operation) -> str:
    return "refunded"


@romulus.workflow
async def cleans_up_elsewhere() -> None:
    try:
        await romulus.wait_for_event("never")
    finally:
        await refunds()


async def test_a_clean_up_that_waits_for_an_operation_nobody_has_begun_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with world(tmp_path, cleans_up_elsewhere) as w:
        await w.worker(cancel_grace=200_000)
        handle = await w.client.start(cleans_up_elsewhere.options(id="r"))
        await w.until("r", RunStatus.WAITING)
        await handle.cancel("enough")

        await w.until("r", RunStatus.CANCELLED)
        assert "its clean-up is incomplete" in ((await handle.describe()).error or "")


@romulus.workflow
async def told_to_go() -> str:
    event = await romulus.wait_for_event("go", correlation_id="r", type=str)
    return event.payload


async def test_a_run_whose_transition_is_refused_while_the_worker_stops_is_given_back_with_nothing_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, told_to_go) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        handle = await w.client.start(told_to_go)
        await w.until(handle.id, RunStatus.WAITING)
        await w.client.send_event("go", "gone", correlation_id="r")
        await eventually(lambda: between.waits == 1)
        stopping = asyncio.ensure_future(w.stop(worker, grace=60_000_000))
        await eventually(lambda: worker.stopping)
        GATES["store"].set()
        await stopping
        assert w.rows("SELECT status, owner, losses FROM runs") == [("pending", None, 0)]

        await w.worker()
        assert await handle.result(timeout=20) == "gone"


@romulus.step
async def repeatable() -> str:
    CALLS.append(("repeatable", romulus.current_attempt().number))
    return "done"


@romulus.workflow
async def repeats_after_a() -> str:
    return await a() + await repeatable()


async def test_a_step_armed_by_a_commit_that_a_stop_overtakes_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, repeats_after_a) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, never)
        handle = await w.client.start(repeats_after_a)
        await begun("a")
        GATES["a"].set()
        await eventually(lambda: between.waits == 1)
        stopping = asyncio.ensure_future(w.stop(worker))
        await eventually(lambda: worker.stopping)
        GATES["store"].set()
        await stopping
        assert w.rows("SELECT count(*) FROM attempts") == [(0,)]

        await w.worker()
        assert await handle.result(timeout=20) == "adone"
    assert CALLS == [("a", 1), ("repeatable", 1)]


@romulus.workflow
async def repeats() -> str:
    return await repeatable()


async def test_a_run_that_can_be_neither_advanced_nor_held_goes_on_once_the_store_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, repeats) as w:
        worker = await w.worker()
        refuses = [True]
        between = Between(worker, monkeypatch, lambda t: refuses[0] and (bool(t.entries) or t.hold is not None))
        between.error = BatchRejected("a defect")
        GATES["store"].set()
        handle = await w.client.start(repeats)
        await eventually(lambda: "can be neither advanced nor held" in caplog.text)
        refuses[0] = False

        assert await handle.result(timeout=20) == "done"
