"""Steps of pools whose workers have other code, or another key, than their caller: nobody's run fails for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.machine import RunStatus
from romulus.worker import aside
from tests.worker.rig import World, eventually, url_of, world

GPU = ("gpu",)
PATIENT = 3_600_000_000  # µs: a worker does not look at the same attempt again


def before() -> Any:
    @romulus.step(name="adds", pool="gpu", retry=romulus.Retry(max_attempts=1))
    async def adds(a: int) -> str:
        return f"old {a}"

    return adds


def now() -> Any:
    @romulus.step(name="adds", pool="gpu", retry=romulus.Retry(max_attempts=1))
    async def adds(a: int, b: int) -> str:
        return f"new {a + b}"

    return adds


ADDS = now()


@romulus.workflow
async def added(a: int) -> str:
    return str(await ADDS(a, 1))


class Keyed:
    """A codec that opens only what its own key sealed, or another key that it knows."""

    def __init__(self, key: bytes, *known: bytes) -> None:
        self._key, self._known = key, (key, *known)

    def encode(self, data: bytes) -> bytes:
        return self._key + data

    def decode(self, data: bytes) -> bytes:
        if data[:1] not in self._known:
            raise KeyError(f"no key {data[:1].decode()}")
        return data[1:]


def serving(path: Path, step: Any, codec: Any = None) -> romulus.App:
    return romulus.App(url_of(path / "romulus.db"), workflows=[], steps=[step], codec=codec)


def unread(w: World) -> Callable[[], bool]:
    return lambda: bool(w.rows("SELECT 1 FROM evidence WHERE kind = 'unread_attempt'"))


async def test_a_pool_worker_of_before_the_deploy_leaves_an_attempt_to_one_that_can_read_it_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, added) as w:
        await w.worker()
        old = await w.worker(serving(tmp_path, before()), pools=GPU, unread_pause=PATIENT)
        handle = await w.client.start(added.options(id="r"), 1)
        await eventually(unread(w))

        (pending,) = (await handle.describe()).pending
        assert (pending.name, pending.attempt, pending.state, pending.owner, pending.unserved) == ("adds", 1, "queued", None, False)
        assert pending.error is not None
        assert pending.error.startswith(f"worker {old.id} cannot read it: step 'adds'")
        assert "argument b: Extra inputs are not permitted" in pending.error
        assert "step 'adds' of run 'r' is left to other workers of pool 'gpu'" in caplog.text
        (kept,) = await handle.evidence()
        assert (kept.kind, kept.owner, kept.detail["step"], kept.detail["number"]) == ("unread_attempt", old.id, "adds", 1)
        (queued,) = await old.store.queued_pools("default")
        assert (queued.unread, queued.unread_run) == (1, "r")

        await w.worker(serving(tmp_path, now()), pools=GPU)
        assert await handle.result(timeout=20) == "new 2"
        assert [entry.attempt for entry in await handle.history()] == [1]


async def test_an_attempt_sealed_under_a_key_that_a_worker_lacks_is_worked_by_one_that_has_it(tmp_path: Path) -> None:
    async with world(tmp_path, added, codec=Keyed(b"2", b"1")) as w:
        await w.worker()
        await w.worker(serving(tmp_path, now(), Keyed(b"1")), pools=GPU, unread_pause=PATIENT)
        handle = await w.client.start(added, 1)
        await eventually(unread(w))
        (pending,) = (await handle.describe()).pending
        assert "no key 2" in (pending.error or "")

        await w.worker(serving(tmp_path, now(), Keyed(b"2")), pools=GPU)
        assert await handle.result(timeout=20) == "new 2"


async def test_what_a_worker_cannot_read_keeps_it_from_nothing_else_and_is_noted_once(tmp_path: Path) -> None:
    old_step = before()

    @romulus.workflow
    async def of_before(a: int) -> str:
        return str(await old_step(a))

    async with world(tmp_path, of_before) as w:
        await w.worker()
        await w.worker(romulus.App(url_of(w.path), workflows=[added]))
        stuck = [await w.client.start_by_name("added", {"a": n}, id=f"new {n}") for n in range(3)]
        for handle in stuck:
            await w.until(handle.id, RunStatus.WAITING)
        first = await w.worker(serving(tmp_path, old_step), pools=GPU, concurrency=1, unread_pause=1)
        runs = [await w.client.start(of_before, n) for n in range(3)]
        assert [await run.result(timeout=20) for run in runs] == ["old 0", "old 1", "old 2"]
        before_that = w.rows("SELECT max(fence) FROM pool_attempts")
        await eventually(lambda: w.rows("SELECT min(fence) FROM pool_attempts") > before_that)  # each was looked at again
        await w.stop(first)
        assert w.rows("SELECT state, count(*) FROM pool_attempts GROUP BY state") == [("queued", 3)]
        assert w.rows("SELECT count(*), count(DISTINCT run) FROM evidence") == [(3, 3)]


async def test_of_a_step_with_many_attempts_that_it_cannot_read_a_worker_claims_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "STEP_MAX", 2)
    async with world(tmp_path, added) as w:
        await w.worker()
        handles = [await w.client.start(added, n) for n in range(5)]
        for handle in handles:
            await w.until(handle.id, RunStatus.WAITING)
        old = await w.worker(serving(tmp_path, before()), pools=GPU, concurrency=1, unread_pause=PATIENT)
        await eventually(lambda: w.rows("SELECT count(*) FROM evidence") == [(2,)])
        await w.stop(old)
        assert w.rows("SELECT count(*) FROM pool_attempts WHERE state = 'queued' AND claimed_at IS NULL") == [(3,)]
