"""Development mode: what differs in a second interpreter is told and held at once; nothing else is ever disturbed."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker
from romulus.worker.shadow import Shadow, Target, process
from tests.worker import shadow_flows as flows
from tests.worker.rig import QUICK, World, eventually, url_of, world

pytestmark = pytest.mark.process
ENOUGH = 30_000_000  # µs: far more than a comparison takes


@pytest.fixture(autouse=True)
def gate() -> asyncio.Event:
    flows.PASSES.clear()
    gate = flows.GATES["slow"] = asyncio.Event()
    return gate


async def shadowed(w: World, target: Target | None = None, **settings: Any) -> Shadow:
    """Start a worker in development mode."""
    host = RealHost()
    store = open_store(url_of(w.path), host)
    await store.open()
    registry = flows.app.registry
    shadow = Shadow(target or Target("tests.worker.shadow_flows", "app"), registry.digests)
    worker = Worker(store, host, registry, concurrency=100, settings=replace(QUICK, **settings), observer=shadow)
    await worker.start()
    w.workers.append(worker)
    return shadow


@asynccontextmanager
async def development(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[World, Shadow]]:
    """Give a world with a worker in development mode whose second interpreter is there."""
    async with world(tmp_path, *flows.WORKFLOWS) as w:
        shadow = await shadowed(w, **settings)
        await eventually(lambda: shadow.ready == 1 or shadow.pid is None)
        assert shadow.ready == 1
        yield w, shadow


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def compared(w: World, shadow: Shadow) -> None:
    """Wait until the workers know of all that they have committed, and the second interpreter has compared it."""
    for worker in w.workers:
        await worker.engine.committer.drained()
    await shadow.settled(ENOUGH)


async def test_steps_in_the_order_of_a_set_hold_the_run_while_its_first_steps_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = (
        r"at position 0, given the same outcomes, the code asked for step 'slow' \(command (\d+)\) in the worker "
        r"and for step 'slow' \(command \1\) with other arguments in a second interpreter .*: the order of a set, hash\(\), id\(\)"
    )
    async with development(tmp_path) as (w, _):
        await w.client.start(flows.set_order.options(id="r"))

        held = await w.until("r", "held")

    assert re.search(said, held.hold_reason or "")
    assert [record.levelno for record in caplog.records if re.search(said, record.getMessage())].count(logging.ERROR) >= 1


async def test_a_branch_on_a_hash_holds_the_run_at_the_branch(tmp_path: Path) -> None:
    async with development(tmp_path) as (w, _):
        await w.client.start(flows.hash_branch.options(id="r"))

        held = await w.until("r", "held")

        assert "at position 1, given the same outcomes, the code asked for step" in (held.hold_reason or "")


async def test_what_a_workflow_keeps_in_a_global_shows_in_the_pass_from_the_start(tmp_path: Path) -> None:
    async with development(tmp_path) as (w, _):
        await w.client.start(flows.remembers.options(id="r"))

        held = await w.until("r", "held")

        assert "at position 1, given the same outcomes, the code asked for step 'slow' (command 2) in the worker" in (
            held.hold_reason or ""
        )


async def test_a_run_that_parked_before_it_was_found_to_differ_is_held_when_it_wakes_before_anything_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with development(tmp_path) as (w, shadow):
        await w.client.start(flows.parks_unsorted.options(id="r"))
        await w.until("r", "waiting")
        await compared(w, shadow)
        assert "not deterministic" in complaints(caplog)[0]

        await w.client.send_event("name-7", None, correlation_id="r")

        assert "position 0" in ((await w.until("r", "held")).hold_reason or "")
        assert w.rows("SELECT position, armed FROM runs WHERE id = 'r'") == [(1, "")]


async def test_a_run_that_was_held_goes_on_once_it_is_released(tmp_path: Path, gate: asyncio.Event) -> None:
    async with development(tmp_path) as (w, _):
        await w.client.start(flows.remembers.options(id="r"))
        await w.until("r", "held")
        await w.stop(w.workers[0])
        flows.PASSES.clear()
        gate.set()
        await w.client.get("r").release()
        await w.worker(flows.app)

        await w.client.get("r").result(timeout=60)


@pytest.mark.parametrize("cache_max", [1_000, 0])
async def test_a_deterministic_run_is_compared_and_nothing_is_said(
    tmp_path: Path, cache_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with development(tmp_path, cache_max=cache_max) as (w, shadow):
        handle = await w.client.start(flows.plain, 6)
        await w.client.send_event("go", "!", correlation_id=handle.id)

        assert await handle.result(timeout=60) == 6

        await compared(w, shadow)
        entries = [entry for entry in await handle.history() if entry.kind != "patch"]
        assert shadow.replayed >= 2 * len(entries)
    assert complaints(caplog) == []


async def test_a_killed_second_interpreter_costs_a_run_nothing_and_another_takes_its_place(
    tmp_path: Path, gate: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with development(tmp_path) as (w, shadow):
        handle = await w.client.start(flows.patient, 3)
        assert shadow.pid is not None
        os.kill(shadow.pid, signal.SIGKILL)
        gate.set()
        assert await handle.result(timeout=60) == 3
        await eventually(lambda: shadow.ready == 2)
        gate.clear()

        await w.client.start(flows.set_order.options(id="r"))

        await w.until("r", "held")
    assert [complaint for complaint in complaints(caplog) if "ended with -9" in complaint]


async def test_the_end_of_a_second_interpreter_is_told_though_asyncio_has_not_heard_of_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waitpid, kill, killed = os.waitpid, process._kill, threading.Event()

    def slow(pid: int, options: int) -> tuple[int, int]:
        if threading.current_thread() is not threading.main_thread():  # asyncio's watcher, where it has a thread
            killed.wait()
        return waitpid(pid, options)

    def once_it_has_ended(ended: asyncio.subprocess.Process) -> None:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        kill(ended)
        killed.set()

    monkeypatch.setattr(os, "waitpid", slow)
    monkeypatch.setattr(process, "_kill", once_it_has_ended)
    async with development(tmp_path) as (_, shadow):
        assert shadow.pid is not None
        os.kill(shadow.pid, signal.SIGKILL)
        await eventually(lambda: "ended with" in "".join(complaints(caplog)))
        monkeypatch.undo()
    assert "ended with -9" in complaints(caplog)[0]


async def test_an_app_that_cannot_be_imported_is_said_once_and_runs_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tmp_path, *flows.WORKFLOWS) as w:
        shadow = await shadowed(w, Target("tests.worker.no_such_module", "app"))
        await eventually(lambda: shadow.pid is None)

        assert await (await w.client.start(flows.long, 3)).result(timeout=60) == 3
        assert await (await w.client.start(flows.long, 4)).result(timeout=60) == 4
    assert len(complaints(caplog)) == 1
    assert "cannot import tests.worker.no_such_module:app" in complaints(caplog)[0]


async def test_code_that_changed_since_the_worker_started_is_not_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with world(tmp_path, *flows.WORKFLOWS) as w:
        host = RealHost()
        store = open_store(url_of(w.path), host)
        await store.open()
        registry = flows.app.registry
        digests = {**registry.digests, ("set_order", "1"): "another"}
        shadow = Shadow(Target("tests.worker.shadow_flows", "app"), digests)
        worker = Worker(store, host, registry, settings=QUICK, observer=shadow)
        await worker.start()
        w.workers.append(worker)
        await eventually(lambda: shadow.ready == 1)
        flows.GATES["slow"].set()

        assert await (await w.client.start(flows.set_order)).result(timeout=60) == len(flows.NAMES)

        await compared(w, shadow)
    assert [complaint.split(";")[0] for complaint in complaints(caplog)] == [
        "development mode: the code of set_order has changed since this worker started"
    ]


async def test_a_run_of_2000_steps_is_replayed_at_linear_cost(tmp_path: Path) -> None:
    async with development(tmp_path) as (w, shadow):
        await (await w.client.start(flows.long, 2_000)).result(timeout=100)
        await compared(w, shadow)

        assert 2 * 2_000 <= shadow.replayed <= 4 * 2_000


async def test_a_run_that_parks_at_each_entry_is_replayed_at_linear_cost(tmp_path: Path) -> None:
    async with development(tmp_path) as (w, shadow):
        await (await w.client.start(flows.naps, 300)).result(timeout=100)
        await compared(w, shadow)

        assert 2 * 300 <= shadow.replayed <= 4 * 300 + 64 * 65 // 2


async def test_a_second_interpreter_that_hangs_costs_a_run_nothing_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with development(tmp_path) as (w, shadow):
        monkeypatch.setattr(process, "QUIET_MAX_S", 0.2)
        assert await (await w.client.start(flows.spins_there)).result(timeout=60) == "here"
        await eventually(lambda: shadow.ready == 2)
    assert [complaint for complaint in complaints(caplog) if "ended with -9" in complaint]


async def test_a_second_interpreter_with_too_much_to_do_is_told_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with development(tmp_path) as (w, _):
        handle = await w.client.start(flows.patient, 3)
        await (await w.client.start(flows.spins_there)).result(timeout=60)
        monkeypatch.setattr(process, "UNREAD_MAX_BYTES", 0)
        gate.set()

        assert await handle.result(timeout=60) == 3
        assert await (await w.client.start(flows.long, 3)).result(timeout=60) == 3
    assert any("has too much to do already" in complaint for complaint in complaints(caplog))


async def test_a_worker_that_stops_leaves_no_second_interpreter_even_one_that_spins(tmp_path: Path) -> None:
    async with development(tmp_path) as (w, shadow):
        await (await w.client.start(flows.spins_there)).result(timeout=60)
        pid = shadow.pid
        assert pid is not None
        await w.stop(w.workers[0])

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_operations_are_followed_and_sent_by_the_worker_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with development(tmp_path) as (w, shadow):
        handle = await w.client.start(flows.writes.options(id="r"))

        assert await handle.result(timeout=30) == ["plain written", "lost found", "after"]

        await eventually(lambda: shadow.ready == 1)
        assert complaints(caplog) == []
        assert w.rows("SELECT name, sends, state FROM operations") == [("write", 1, "confirmed")] * 2
