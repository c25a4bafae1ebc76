"""A cancel of a held run: its code gets one chance to clean up; where that cannot be, the run ends cancelled and says why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Applied, Operation, Retry
from romulus.core.machine import RunStatus
from tests.worker.gates import CALLS, GATE, fresh, gated, noted
from tests.worker.rig import World, eventually, url_of, world

clear = fresh
LIMIT = 200_000  # of an activation, in µs


async def reaches_out() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


@romulus.workflow
async def refused(n: int) -> None:
    await noted("begun")
    await reaches_out()


@romulus.workflow
async def hung(n: int) -> None:
    await noted("begun")
    while True:
        pass


@romulus.workflow
async def hung_at_once(n: int) -> None:
    while True:
        pass


@romulus.workflow
async def counts(n: int) -> int:
    return n


@romulus.workflow
async def long(n: int) -> None:
    try:
        for _ in range(n):
            await noted("step")
    finally:
        await noted("cleaned up")


@romulus.workflow
async def stuck(n: int) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await gated("cleaning up")
        await asyncio.sleep(0.001)
        if n:
            await reaches_out()


@romulus.workflow
async def unclean() -> None:
    try:
        await romulus.wait_for_event("never")
    finally:
        await reaches_out()


@romulus.operation(timeout=5, retry=Retry(max_attempts=1))
async def charges(op: Operation) -> None:
    raise TimeoutError("no answer")


@romulus.workflow
async def pays() -> None:
    beside = asyncio.ensure_future(charges())
    await romulus.wait_for_event("look")
    await reaches_out()
    await beside


class Away:
    """A codec whose key service goes away for good."""

    away = False

    def encode(self, data: bytes) -> bytes:
        if Away.away:
            raise OSError("the key service is away")
        return data

    def decode(self, data: bytes) -> bytes:
        return data


@romulus.workflow
async def waits(n: int) -> None:
    await romulus.wait_for_event("never")


def flow(path: Path, fn: Any, *others: Any) -> romulus.App:
    """Return an App whose workflow named "flow" is *fn*: one deploy."""
    return romulus.App(url_of(path / "romulus.db"), workflows=[romulus.workflow(name="flow")(fn), *others])


async def with_a_child(n: int) -> None:
    await asyncio.gather(noted("begun"), waits.options(id="child")(n), romulus.wait_for_event("look"))


async def without(n: int) -> None:
    await noted("another")


async def without_either(n: int) -> None:
    await noted("a third")


async def cancelled_for(w: World, run_id: str, words: str) -> romulus.RunDescription:
    """Cancel a held run; return it once it has ended cancelled, with *words* in its error."""
    assert await w.client.get(run_id).cancel("enough") == "accepted"
    await w.until(run_id, RunStatus.CANCELLED)
    ended = await w.client.get(run_id).describe()
    assert (ended.error or "").startswith(f"CleanUpFailed: run {run_id!r} was cancelled while it was held")
    assert words in (ended.error or "")
    assert words in (ended.hold_reason or "")
    with pytest.raises(romulus.RunCancelled, match="enough"):
        await w.client.get(run_id).result()
    return ended


@pytest.mark.parametrize(
    ("workflow", "given", "words"),
    [
        ("counts", {"n": "a word"}, "cannot be decoded as arguments"),
        ("refused", {"n": 1}, "run_in_executor"),
        ("hung", {"n": 1}, "did not give control back"),
        ("hung_at_once", {"n": 1}, "did not give control back"),
        ("long", {"n": 9}, "the history has reached 3 entries"),
    ],
)
async def test_a_cancel_of_a_held_run_that_would_be_held_again_ends_it_cancelled_and_says_why(
    tmp_path: Path, workflow: str, given: dict[str, Any], words: str
) -> None:
    async with world(tmp_path, counts, refused, hung, hung_at_once, long) as w:
        await w.worker(activation_limit=LIMIT, history_max=3)
        async with romulus.AsyncClient(url_of(tmp_path / "romulus.db")) as unchecked:
            await unchecked.start_by_name(workflow, given, id="r")
        handle = w.client.get("r")
        await w.until("r", RunStatus.HELD)
        await cancelled_for(w, "r", words)

        assert await handle.cancel() == "already_terminal"
        await handle.retry()  # nothing of what was recorded is lost
        assert words in ((await w.until("r", RunStatus.HELD)).hold_reason or "")


@pytest.mark.parametrize("unfitting", [1, 2])  # the first of two gives the run to the other
async def test_a_run_that_was_cancelled_while_no_code_fits_it_ends_with_its_children_and_is_told_to_its_parent(
    tmp_path: Path, unfitting: int
) -> None:
    @romulus.workflow
    async def parent() -> str:
        try:
            await child.options(id="r")(1)
        except romulus.ChildFailed as error:
            return f"{error.status} {type(error.__cause__).__name__}"
        return "none"

    child = romulus.workflow(name="flow")(with_a_child)
    async with world(tmp_path, parent, child, waits) as w:
        first = await w.worker()
        handle = await w.client.start(parent)
        await eventually(lambda: w.rows("SELECT status FROM runs WHERE id = 'child'") == [("waiting",)])
        await eventually(lambda: w.rows("SELECT status, position FROM runs WHERE id = 'r'") == [("waiting", 1)])
        await w.stop(first)
        other = await w.worker(flow(tmp_path, without))
        await w.client.get("r").send_event("look")
        await w.until("r", RunStatus.HELD)
        await w.stop(other)
        assert await w.client.get("r").cancel("enough") == "accepted"
        assert (await w.client.get("r").describe()).hold_reason is None  # it is on its way
        for code in (without, without_either)[:unfitting]:
            await w.worker(flow(tmp_path, code))

        ended = await w.until("r", RunStatus.CANCELLED)
        assert "'noted'" in (ended.hold_reason or "")
        await w.worker()
        await w.until("child", RunStatus.CANCELLED)
        assert await handle.result() == "cancelled CleanUpFailed"


@pytest.mark.parametrize("mended", [True, False])
async def test_a_run_that_was_cancelled_while_it_was_held_cleans_up_as_far_as_its_code_can(tmp_path: Path, *, mended: bool) -> None:
    async with world(tmp_path, stuck) as w:
        first = await w.worker(cache_max=0)
        handle = await w.client.start(stuck.options(id="r"), 0 if mended else 1)
        await w.until("r", RunStatus.HELD)
        await handle.cancel("enough")
        await eventually(lambda: CALLS == ["cleaning up"])
        await w.kill(first)
        await w.worker(cache_max=0)
        await eventually(lambda: CALLS == ["cleaning up"] * 2)
        GATE.set()

        await w.until("r", RunStatus.CANCELLED)
        error = (await handle.describe()).error or ""
        assert ("run_in_executor" in error, error.partition(":")[0]) == (not mended, "CancelledError" if mended else "CleanUpFailed")
        assert [entry.kind for entry in await handle.history()] == ["cancel", "step", "timer"]


async def test_a_clean_up_that_cannot_go_on_holds_the_run_for_mended_code_or_for_a_second_cancel(tmp_path: Path) -> None:
    async with world(tmp_path, unclean) as w:
        await w.worker()
        handle = await w.client.start(unclean.options(id="r"))
        await w.until("r", RunStatus.WAITING)
        await handle.cancel("enough")
        held = await w.until("r", RunStatus.HELD)
        assert "cancel it again to end it as it stands" in (held.hold_reason or "")
        await handle.release()
        await w.until("r", RunStatus.HELD)
        assert await handle.cancel() == "accepted"

        await w.until("r", RunStatus.CANCELLED)
        assert "run_in_executor" in ((await handle.describe()).error or "")


async def test_a_cancelled_run_stays_held_while_an_operation_of_it_may_have_been_applied_and_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, pays) as w:
        await w.worker()
        handle = await w.client.start(pays.options(id="r"))
        await eventually(lambda: w.rows("SELECT state FROM operations") == [("held",)])
        await handle.send_event("look")
        first = await w.until("r", RunStatus.HELD)
        assert await handle.cancel("enough") == "accepted"
        held = await w.until("r", RunStatus.HELD)
        assert "an operation that it awaits may have been applied" in (held.hold_reason or "")
        assert (held.fence > first.fence, held.cancel_requests) == (True, 1)
        (operation,) = await w.client.operations(state="held")
        await w.client.resolve_operation(operation.id, Applied(None), reason="looked", reviewer="ada")
        assert await handle.cancel("enough") == "accepted"

        await w.until("r", RunStatus.CANCELLED)
        assert "run_in_executor" in ((await handle.describe()).error or "")


async def test_a_cancelled_run_whose_codec_fails_ends_and_keeps_the_reason_of_its_hold(tmp_path: Path) -> None:
    Away.away = False
    async with world(tmp_path, waits, codec=Away()) as w:
        await w.worker()
        handle = await w.client.start(waits.options(id="r"), 1)
        await w.until("r", RunStatus.WAITING)
        Away.away = True
        await handle.cancel("enough")
        await w.until("r", RunStatus.HELD)
        assert await handle.cancel("enough") == "accepted"

        ended = await w.until("r", RunStatus.CANCELLED)
        assert "the key service is away" in (ended.hold_reason or "")
        (listed,) = await w.client.runs()
        assert listed.hold_reason == ended.hold_reason


async def test_a_cancel_that_is_accepted_while_a_run_cleans_up_after_its_own_timeout_ends_it_cancelled(tmp_path: Path) -> None:
    @romulus.workflow(timeout=0.05)
    async def late(cancel: bool) -> None:
        try:
            await romulus.wait_for_event("never")
        finally:
            await gated("cleaning up")

    async with world(tmp_path, late) as w:
        await w.worker()
        asked, left = [await w.client.start(late, each) for each in (True, False)]
        await eventually(lambda: len(CALLS) == 2)
        assert await asked.cancel("enough") == "accepted"
        GATE.set()

        with pytest.raises(romulus.RunCancelled, match="enough"):
            await asked.result()
        with pytest.raises(romulus.RunFailed, match="went on past its timeout"):
            await left.result()
