"""Operations of pools whose workers have other code, or another key, than their caller: they are left to those that can read them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Applied, LookupResult, NotApplied, Operation, Retry
from tests.worker.rig import World, eventually, url_of, world
from tests.worker.test_unread_attempts import PATIENT, Keyed

SIDE = ("side",)
ONCE = Retry(max_attempts=1)
OFTEN = Retry(max_attempts=None, initial=0.05, backoff=1, jitter=0)
SENT: list[tuple[str, int]] = []  # who sent it, which attempt
ASKED: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    SENT.clear()
    ASKED.clear()


def before() -> Any:
    @romulus.operation(name="writes", pool="side", retry=ONCE, lookup_retry=OFTEN)
    async def writes(op: Operation, a: int) -> str:
        SENT.append(("old", op.attempt))
        return f"old {a}"

    @writes.lookup
    async def find(op: Operation, a: int) -> LookupResult[str]:
        ASKED.append("old")
        return NotApplied()

    return writes


def now() -> Any:
    @romulus.operation(name="writes", pool="side", retry=ONCE, lookup_retry=OFTEN)
    async def writes(op: Operation, a: int, b: int) -> str:
        SENT.append(("new", op.attempt))
        if a < 0:
            await asyncio.Event().wait()
        return f"new {a + b}"

    @writes.lookup
    async def find(op: Operation, a: int, b: int) -> LookupResult[str]:
        ASKED.append("new")
        return Applied(f"found {b}")

    return writes


WRITES = now()


@romulus.workflow
async def written(a: int) -> str:
    return str(await WRITES(a, 1))


def serving(path: Path, step: Any, codec: Any = None) -> romulus.App:
    return romulus.App(url_of(path / "romulus.db"), workflows=[], steps=[step], codec=codec)


def kinds(here: World) -> list[str]:
    return [kind for (kind,) in here.rows("SELECT kind FROM operation_notes ORDER BY key")]


@pytest.mark.parametrize(("step", "key", "words"), [(before, b"2", "argument b: Extra inputs"), (now, b"1", "no key 2")])
async def test_a_pool_worker_that_cannot_read_an_operation_leaves_it_to_one_that_can_and_spends_no_attempt(
    tmp_path: Path, step: Any, key: bytes, words: str
) -> None:
    async with world(tmp_path, written, codec=Keyed(b"2")) as here:
        await here.worker()
        other = await here.worker(serving(tmp_path, step(), Keyed(key)), pools=SIDE, unread_pause=PATIENT)
        handle = await here.client.start(written, 1)
        await eventually(lambda: kinds(here) == ["armed", "un-armed"])
        assert here.rows("SELECT DISTINCT who FROM operation_notes") == [(other.id,)]
        (detail,) = here.rows("SELECT detail FROM operation_notes WHERE kind = 'un-armed' ORDER BY key LIMIT 1")
        assert words in detail[0]

        await here.worker(serving(tmp_path, now(), Keyed(b"2")), pools=SIDE)
        assert await handle.result(timeout=20) == "new 2"
        assert here.rows("SELECT sends, looks FROM operations") == [(1, 0)]
    assert SENT == [("new", 1)]


async def test_an_unknown_operation_whose_lookup_a_worker_cannot_call_is_looked_up_by_one_that_can(tmp_path: Path) -> None:
    async with world(tmp_path, written) as here:
        await here.worker()
        sender = await here.worker(serving(tmp_path, now()), pools=SIDE)
        handle = await here.client.start(written, -1)
        await eventually(lambda: SENT == [("new", 1)])
        await here.kill(sender)
        old = await here.worker(serving(tmp_path, before()), pools=SIDE, unread_pause=PATIENT)
        await eventually(lambda: "lookup: unknown" in kinds(here))
        (detail,) = here.rows("SELECT detail FROM operation_notes WHERE kind = 'lookup: unknown' ORDER BY key LIMIT 1")
        assert f"its lookup cannot be called by worker {old.id}: operation 'writes'" in detail[0]
        assert "argument b: Extra inputs are not permitted" in detail[0]

        await here.worker(serving(tmp_path, now()), pools=SIDE)
        assert await handle.result(timeout=20) == "found 1"
    assert (SENT, ASKED) == ([("new", 1)], ["new"])
