"""Workers of two releases on one database while its schema moves on under them."""

from __future__ import annotations

import asyncio

import pytest

from tests.cases.apps.chains import barrier, chain
from tests.processes.next_release import VERSION
from tests.processes.stage import FULL, Stage, on_own_postgres

pytestmark = [pytest.mark.process, on_own_postgres]
APP = "tests.cases.apps.chains:app"
NEXT = "tests.processes.next_release"
COUNT = 500 if FULL else 60


async def test_workers_of_the_release_before_go_on_while_the_schema_is_migrated_and_beside_new_ones(stage: Stage) -> None:
    """RB-58: an additive migration, by one of two migrators that begin at once."""
    old = await stage.worker(APP)
    standing = await stage.client.start(chain.options(id="standing"), "gate", "async")
    await stage.seen("begin")
    load = asyncio.ensure_future(under_load(stage, "before"))
    await stage.seen("branch", 20)
    stage.program = NEXT
    new = [stage.starting_worker(APP) for _ in range(2)]
    await stage.ready(*new)
    assert stage.rows("SELECT value FROM meta WHERE name = 'version'") == [(str(VERSION),)]
    stage.open("gate")
    assert await standing.result(timeout=60) == ["gate", "2", "3"]
    await load
    rounds = 0
    while {line["pid"] for line in stage.effects("branch") if line["run"].startswith("after")} != {old.pid, *(p.pid for p in new)}:
        rounds += 1  # until each of the three has had one
        await under_load(stage, f"after-{rounds}")

    assert {line["pid"] for line in stage.effects("begin")} == {old.pid}
    assert [line["attempt"] for line in stage.effects("branch")] == [1] * (3 * COUNT * (1 + rounds))
    assert not any("Traceback" in process.log or " ERROR " in process.log for process in stage.processes)
    stage.whole()


async def test_workers_of_a_release_that_is_too_old_finish_what_they_have_and_claim_nothing_more(stage: Stage) -> None:
    """RB-58: where the schema needs the new release."""
    old = await stage.worker(APP)
    standing = await stage.client.start(chain.options(id="standing"), "gate", "async")
    await stage.seen("begin")
    stage.program = NEXT
    await stage.worker(APP, NEXT_COMPATIBLE=str(VERSION))
    await under_load(stage, "after")
    stage.open("gate")
    assert await standing.result(timeout=60) == ["gate", "2", "3"]

    assert old.pid not in {line["pid"] for line in stage.effects("branch")}
    assert {line["pid"] for line in stage.effects("begin")} == {old.pid}
    (told,) = [line for line in old.log.splitlines() if " ERROR " in line]
    assert f"needs a release for schema {VERSION} or newer now: this worker claims nothing more, upgrade it" in told
    stage.whole()


async def under_load(stage: Stage, name: str) -> None:
    """Start runs one after another and require that each ends well."""
    handles = []
    for number in range(COUNT):
        handles.append(await stage.client.start(barrier.options(id=f"{name}-{number}"), number, 3))
    assert [await handle.result(timeout=60) for handle in handles] == [number * 30 + 3 for number in range(COUNT)]
