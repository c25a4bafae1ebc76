"""Databases at their worst: a file that many processes share and an outsider locks, a server that restarts during a takeover."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import pytest

from tests.cases.apps.chains import barrier, chain
from tests.postgres.server import Database
from tests.processes.stage import FULL, Stage, on_own_server

pytestmark = pytest.mark.process
APP = "tests.cases.apps.chains:app"
PROCESSES, SECONDS, LOCK_S = (8, 60, 3.0) if FULL else (4, 4, 1.5)
AT_ONCE = 4 * PROCESSES
HELD, DOWN_S = (250, 2.0) if FULL else (60, 0.5)


async def test_a_locked_file_reaches_no_user_code_and_ends_no_worker(stage: Stage) -> None:
    """RB-42."""
    await stage.ready(*(stage.starting_worker(APP, "--concurrency", "4", ROMULUS_LEASE="15") for _ in range(PROCESSES)))
    loop = asyncio.get_running_loop()
    until = loop.time() + SECONDS
    count = 0

    async def tasks(number: int) -> None:
        nonlocal count
        while loop.time() < until:
            run, count = count, count + 1
            assert await (await stage.client.start(barrier.options(id=f"t{run}"), run, 3)).result(timeout=60) == run * 30 + 3

    async def lists() -> None:
        while loop.time() < until:
            assert await stage.client.runs(limit=50)
            await stage.client.workers()

    async def holds_the_lock() -> None:
        with stage.database() as outsider:
            outsider.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(LOCK_S)  # what the outsider does, not what the test waits for
            outsider.execute("ROLLBACK")

    first = await stage.client.start(barrier.options(id="first"), 0, 1)
    await first.result(timeout=60)
    await asyncio.gather(*(tasks(n) for n in range(AT_ONCE)), lists(), holds_the_lock())

    for process in stage.processes:
        process.terminate()
    assert [await stage.exited(process) for process in stage.processes] == [0] * PROCESSES
    assert stage.rows("SELECT status, count(*) FROM runs GROUP BY status") == [("succeeded", count + 1)]
    assert [e["attempt"] for e in stage.effects("branch")] == [1] * (3 * count + 1)
    assert not any("Traceback" in process.log or "is dead" in process.log for process in stage.processes)
    stage.whole()


async def test_a_lock_held_longer_than_the_lease_costs_attempts_at_most_and_no_run(stage: Stage) -> None:
    """RB-42's worst: nobody can renew. What is committed is committed once."""
    await stage.ready(*(stage.starting_worker(APP) for _ in range(2)))
    handles = [await stage.client.start(barrier.options(id=f"t{n}"), n, 5) for n in range(40)]
    await stage.seen("branch", 5)
    with stage.database() as outsider:
        outsider.execute("BEGIN IMMEDIATE")
        pending = asyncio.gather(*(handle.result(timeout=60) for handle in handles))
        lapsed = outsider.execute("SELECT max(lease_until) FROM workers").fetchone()[0] / 1_000_000
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(pending), max(lapsed - loop.time(), 0) + 1)
        outsider.execute("ROLLBACK")
    assert await pending == [n * 50 + 10 for n in range(40)]
    assert stage.rows("SELECT count(*) FROM journal") == [(200,)]
    assert all(process.exit_code is None for process in stage.processes)
    stage.whole()


@on_own_server
async def test_a_server_killed_while_a_dead_workers_runs_are_taken_over_strands_none_of_them(
    stage: Stage, own_server_database: Database
) -> None:
    """RB-37."""
    lone = await stage.worker(APP, "--concurrency", str(HELD), ROMULUS_LEASE="6")
    handles = [await stage.client.start(chain.options(id=f"r{n}"), "gate", "async") for n in range(HELD)]
    await stage.seen("begin", HELD)
    lone.kill()
    workers = [await stage.worker(APP, "--concurrency", str(HELD), ROMULUS_LEASE="6") for _ in range(2)]
    await stage.until(lambda: stage.rows("SELECT count(*) FROM runs WHERE owner IS NULL OR losses > 0")[0][0] > 0, "takeover begins")
    await asyncio.to_thread(own_server_database.server.stop, signal.SIGQUIT)
    await asyncio.sleep(DOWN_S)  # how long the server is down, not what the test waits for
    await asyncio.to_thread(own_server_database.server.start)
    stage.open("gate")

    assert [await handle.result(timeout=60) for handle in handles] == [["gate", "2", "3"]] * HELD
    assert stage.rows("SELECT status, count(*) FROM runs GROUP BY status") == [("succeeded", HELD)]
    assert [worker.exit_code for worker in workers] == [None, None]
    assert not any("Traceback" in worker.log for worker in workers)
    stage.whole()
