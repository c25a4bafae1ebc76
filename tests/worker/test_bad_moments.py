"""What fails at a bad moment loses no outcome and leaves no run that nobody looks after."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Retry
from tests.worker.rig import eventually, world

CALLS: list[str] = []
GATE = asyncio.Event()
THREAD = threading.Event()


class Rude(BaseException):
    """Not an Exception."""


class Moody:
    """A codec whose key service is away now and then."""

    away = False  # when it is to encode
    locked = False  # when it is to decode
    refused = 0

    def encode(self, data: bytes) -> bytes:
        if Moody.away:
            Moody.refused += 1
            raise OSError("the key service is away: \udcff")
        return data

    def decode(self, data: bytes) -> bytes:
        if Moody.locked:
            raise OSError("the key service is away")
        if b"another key" in data:
            raise ValueError("not my key")
        return data


@romulus.operation(timeout=5, retry=Retry(max_attempts=3, initial=0.01), lookup_retry=Retry(max_attempts=3, initial=0.01))
async def writes(op: romulus.Operation, how: str) -> str:
    await asyncio.sleep(0)
    return answer_of(op, how)


@writes.lookup
async def finds(op: romulus.Operation, how: str) -> romulus.LookupResult[str]:
    if CALLS.count("asked") == 0 and how == "lost twice":
        Moody.away = Moody.locked = True
    CALLS.append("asked")
    return romulus.Applied("found")


@romulus.operation(timeout=5, pool="payments")
def writes_in_pool(op: romulus.Operation, how: str) -> str:
    return answer_of(op, how)


def answer_of(op: romulus.Operation, how: str) -> str:
    CALLS.append(op.id)
    Moody.away = Moody.locked = how != "lost twice" and [op.id] == CALLS
    if how == "refused":
        raise romulus.Rejected("no")
    if how == "unsent" and [op.id] == CALLS:
        raise romulus.NotSent("unreachable")
    if how.startswith("lost"):
        raise ConnectionError("no answer")
    return "done"


@romulus.workflow
async def has_it_written(how: str) -> str:
    try:
        return await (writes_in_pool.aio("done") if how == "in a pool" else writes(how))
    except romulus.OperationRejected as refused:
        return str(refused)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global GATE
    CALLS.clear()
    GATE = asyncio.Event()
    Moody.away, Moody.locked, Moody.refused = False, False, 0


@romulus.step(retry=Retry(max_attempts=1))
async def rude(kind: str) -> None:
    raise {"cancelled": asyncio.CancelledError, "own": Rude, "exit": GeneratorExit}[kind]


@romulus.step(retry=Retry(max_attempts=1))
async def rude_later(kind: str) -> None:
    await asyncio.sleep(0)
    raise {"cancelled": asyncio.CancelledError, "own": Rude, "exit": GeneratorExit, "sys.exit": SystemExit}[kind]


@romulus.workflow
async def bears(kind: str) -> str:
    try:
        await (rude_later if kind.startswith("sys") else rude)(kind)
    except BaseException as error:
        return type(error).__name__
    return "nothing"


@romulus.step(retry=Retry(max_attempts=1))
def exhausted() -> int:
    return next(iter(()))


@romulus.workflow
def takes_the_first() -> str:
    try:
        exhausted()
    except RuntimeError as error:
        return str(error)
    return "nothing"


@romulus.step(retry=Retry(max_attempts=1))
async def pays() -> str:
    CALLS.append("paid")
    Moody.away = True
    return "receipt"


@romulus.workflow
async def buys() -> str:
    return await pays()


@romulus.workflow
async def ends() -> str:
    event = await romulus.wait_for_event("go", correlation_id="c", type=str)
    Moody.away = not CALLS  # in the moment the code ends
    return event.payload


@pytest.mark.parametrize("kind", ["cancelled", "own", "exit", "sys.exit"])
async def test_a_step_may_raise_what_is_no_exception(tmp_path: Path, kind: str) -> None:
    async with world(tmp_path, bears) as w:
        await w.worker()
        assert await (await w.client.start(bears, kind)).result(timeout=20) != "nothing"


async def test_a_def_step_that_raises_stop_iteration_fails(tmp_path: Path) -> None:
    async with world(tmp_path, takes_the_first) as w:
        await w.worker()
        assert "StopIteration" in await (await w.client.start(takes_the_first)).result(timeout=20)


async def test_an_outcome_that_the_codec_cannot_encode_now_is_recorded_later(tmp_path: Path) -> None:
    async with world(tmp_path, buys, codec=Moody()) as w:
        await w.worker()
        handle = await w.client.start(buys)
        await eventually(lambda: Moody.refused > 1)
        Moody.away = False
        assert await handle.result(timeout=20) == "receipt"
    assert CALLS == ["paid"]


async def test_a_run_whose_end_the_codec_cannot_encode_is_held_and_ends_when_released(tmp_path: Path) -> None:
    async with world(tmp_path, ends, codec=Moody()) as w:
        await w.worker()
        handle = await w.client.start(ends.options(id="r"))
        await w.until("r", "waiting")
        await w.client.send_event("go", "now", correlation_id="c")
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "the key service is away: \\udcff" in held.hold_reason

        CALLS.append("back")
        await handle.release()
        assert await handle.result(timeout=20) == "now"


@pytest.mark.parametrize(
    ("how", "sends", "outcome"),
    [
        ("done", 1, "done"), ("refused", 1, "no"), ("unsent", 2, "done"),
        ("lost", 1, "found"), ("lost twice", 1, "found"), ("in a pool", 1, "done"),
    ],
)  # fmt: skip
async def test_what_a_send_or_lookup_came_to_is_kept_while_the_codec_fails(tmp_path: Path, how: str, sends: int, outcome: str) -> None:
    async with world(tmp_path, has_it_written, codec=Moody()) as w:
        await w.worker(pools=("default", "payments"))
        handle = await w.client.start(has_it_written, how)
        await eventually(lambda: Moody.refused > 1)
        Moody.away = Moody.locked = False
        assert await handle.result(timeout=20) == outcome
    assert len([call for call in CALLS if call != "asked"]) == sends


async def test_an_event_that_the_codec_cannot_decode_now_is_not_taken_as_bad(tmp_path: Path) -> None:
    async with world(tmp_path, ends, codec=Moody()) as w:
        await w.worker()
        CALLS.append("calm")
        handle = await w.client.start(ends.options(id="r"))
        await w.until("r", "waiting")
        Moody.locked = True
        await w.client.send_event("go", "now", correlation_id="c", event_id="e")
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert held.hold_reason == (
            "event 'e' cannot be decoded: the App's codec raised OSError: the key service is away; "
            "mend the codec or what it depends on, then `romulus runs release`"
        )

        Moody.locked = False
        assert [event.state for event in await w.client.events()] == ["matched"]
        await handle.release()
        assert await handle.result(timeout=20) == "now"


async def test_an_event_that_a_working_codec_cannot_decode_is_taken_as_bad(tmp_path: Path) -> None:
    async with world(tmp_path, ends, codec=Moody()) as w:
        await w.worker()
        CALLS.append("calm")
        handle = await w.client.start(ends.options(id="r"))
        await w.client.send_event("go", "another key", correlation_id="c")
        await w.client.send_event("go", "now", correlation_id="c")
        assert await handle.result(timeout=20) == "now"
        assert [event.state for event in await w.client.events()] == ["bad", "consumed"]


async def test_a_defect_of_the_engine_in_an_advance_holds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, ends) as w:
        await w.worker()
        await w.client.start(ends.options(id="r"))
        await w.until("r", "waiting")

        def broken(*given: Any) -> None:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr("romulus.worker.deliveries._event", broken)
        await w.client.send_event("go", "now", correlation_id="c")
        held = await w.until("r", "held")
    assert held.hold_reason is not None
    assert "ZeroDivisionError: a defect" in held.hold_reason


@romulus.step(transaction=True, timeout=0.1, retry=Retry(max_attempts=1))
def writes_late(busy: bool) -> None:
    attempt = romulus.current_attempt()
    connection = attempt.connection
    connection.execute("CREATE TABLE effects (n)")
    try:
        if busy:
            connection.execute("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r").fetchall()
        while not attempt.cancelled:
            THREAD.wait(0.001)
        connection.execute("CREATE TABLE IF NOT EXISTS effects (n)")
        connection.execute("INSERT INTO effects VALUES (1)")
    finally:
        CALLS.append("ended")


@romulus.workflow
async def has_late_writer(busy: bool) -> str:
    try:
        await writes_late.aio(busy)
    except romulus.StepTimeout:
        return "timed out"
    return "no"


@pytest.mark.parametrize("busy", [False, True])
async def test_a_def_transactional_step_past_its_timeout_writes_nothing_and_keeps_nobody_out(tmp_path: Path, busy: bool) -> None:
    async with world(tmp_path, has_late_writer) as w:
        await w.worker()
        assert await (await w.client.start(has_late_writer, busy)).result(timeout=20) == "timed out"
        await eventually(lambda: "ended" in CALLS)
        assert w.rows("SELECT name FROM sqlite_master WHERE name = 'effects'") == []


@romulus.step
async def one() -> None:
    CALLS.append("one")


@romulus.step
async def gated() -> None:
    CALLS.append("gated")
    await GATE.wait()


@romulus.workflow
async def ends_after_a_step() -> str:
    await one()
    event = await romulus.wait_for_event("go", correlation_id="c", type=str)
    return event.payload


@romulus.workflow
async def waits_in_a_step() -> str:
    await gated()
    return "done"


@pytest.mark.parametrize("call", ["history", "take_up"])
async def test_a_run_that_a_defect_keeps_from_being_taken_up_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    async with world(tmp_path, ends_after_a_step) as w:
        lost = await w.worker()
        handle = await w.client.start(ends_after_a_step.options(id="r"))
        await w.until("r", "waiting")
        await w.kill(lost)

        def broken(*given: Any) -> Any:
            raise ZeroDivisionError("a defect")

        worker = await w.worker()
        if call == "history":
            monkeypatch.setattr(worker.store, "history", broken)
        else:
            monkeypatch.setattr("romulus.worker.takeup.take_up", broken)
        await w.client.send_event("go", "now", correlation_id="c")
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "ZeroDivisionError: a defect" in held.hold_reason

        monkeypatch.undo()
        CALLS.append("back")
        await handle.release()
        assert await handle.result(timeout=20) == "now"
    assert CALLS.count("one") == 1


async def test_a_run_that_cannot_be_taken_anew_goes_on_under_another_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, waits_in_a_step) as w:
        worker = await w.worker()
        handle = await w.client.start(waits_in_a_step)
        await eventually(lambda: "gated" in CALLS)

        def broken(*given: Any) -> Any:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(worker.store, "reclaim", broken)
        (driver,) = worker.memory.active.values()
        worker.rebuild(driver)
        GATE.set()
        assert await handle.result(timeout=20) == "done"
    assert CALLS == ["gated", "gated"]
