"""What goes wrong under a worker that already serves: said once each, and over by itself once its cause has ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.cases.apps.chains import barrier
from tests.postgres.proxy import Proxy, proxied
from tests.postgres.server import Database
from tests.processes.stage import Process, Stage, on_postgres, stage

__all__ = ["stage"]

pytestmark = [pytest.mark.process, on_postgres, pytest.mark.timeout(180)]
APP = "tests.cases.apps.chains:app"
GRANT = "GRANT ALL ON ALL TABLES IN SCHEMA romulus TO servant"


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[Proxy]:
    async with proxied(database.server.port) as proxy:
        yield proxy


@pytest.fixture
async def worker(stage: Stage, database: Database, proxy: Proxy) -> AsyncIterator[Process]:
    """A worker behind the proxy, whose role may do what a worker needs and no more."""
    database.execute(f"CREATE ROLE servant LOGIN; GRANT USAGE ON SCHEMA romulus TO servant; {GRANT}")
    database.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA romulus TO servant")
    place = database.server.url(database.name, proxy.port).replace("postgres@", "servant@")
    yield await stage.worker(APP, ROMULUS_STORE=f"{place}?pooler=none", ROMULUS_LEASE="4")
    stage.close()
    database.execute("DROP OWNED BY servant; DROP ROLE servant")


async def test_a_worker_says_once_what_is_wrong_and_goes_on_when_it_is_right_again(
    stage: Stage, worker: Process, proxy: Proxy, database: Database
) -> None:
    await serves(stage, "at first")

    database.execute("REVOKE ALL ON ALL TABLES IN SCHEMA romulus FROM servant")
    for part in ("claiming has to wait", "lease not renewed"):  # by then each has tried several times
        await said(stage, worker, f"{part}.*this role lacks the rights: grant them on schema romulus")
    database.execute(GRANT)
    await serves(stage, "the rights are back")

    database.execute("ALTER TABLE romulus.to_match RENAME TO gone")
    await said(stage, worker, "a table of schema romulus is missing: run `romulus migrate`")
    database.execute("ALTER TABLE romulus.gone RENAME TO to_match")
    await serves(stage, "the table is back")

    await proxy.go_away()
    await said(stage, worker, "cannot connect: check host, port and network")
    await proxy.start()
    await serves(stage, "the network is back")

    proxy.open.clear()
    await said(stage, worker, r"the lease was not renewed within 1\.0 s")
    proxy.open.set()
    await serves(stage, "what was silent speaks again")

    await stage.stop(worker)
    assert "Traceback" not in worker.log
    assert {line: count for line, count in told(worker).items() if count > 1} == {}


async def serves(stage: Stage, run: str) -> None:
    """Require that a run started now ends; the runs of this worker are nobody else's."""
    handle = await stage.client.start(barrier.options(id=run), 1, 2)
    assert await handle.result(timeout=60) == 21


async def said(stage: Stage, worker: Process, words: str) -> None:
    """Wait until the worker says it."""
    await stage.until(lambda: re.search(words, worker.log) is not None, words)


def told(worker: Process) -> Counter[str]:
    """Return how often the worker has warned of what, in which part of it, without times, process IDs and worker IDs."""
    lines = [line.partition(" WARNING ")[2] for line in worker.log.splitlines() if " WARNING " in line]
    return Counter(re.sub(r"\d+\.\d s|\(.*\)|vm-[\w-]+", "…", line) for line in lines)
