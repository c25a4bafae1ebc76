"""The last check before a send: right before the body, however long that waited for a thread or for the loop."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import romulus
from romulus import Applied, LookupResult, NotApplied, Operation, Retry
from romulus.host import RealHost
from romulus.worker import Worker
from tests.worker.rig import World, eventually, world

QUICK = Retry(max_attempts=3, initial=0.01, jitter=0)
LEASE = 600_000  # µs
SENDS: list[int] = []  # attempts that reached the provider, in order


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENDS.clear()


@romulus.operation(timeout=0.1, retry=QUICK, lookup_retry=QUICK)
def threaded(op: Operation) -> str:
    SENDS.append(op.attempt)
    return "sent"


@threaded.lookup
def find_threaded(op: Operation) -> LookupResult[str]:
    return Applied("found") if SENDS else NotApplied()


@romulus.operation(timeout=5, retry=QUICK)
def patient(op: Operation) -> str:
    SENDS.append(op.attempt)
    return "sent"


@romulus.workflow
async def write(kind: str) -> str:
    return await {"threaded": threaded, "patient": patient}[kind].aio()


class Busy:
    """Holds all threads of a worker's pool until it is let go."""

    def __init__(self, here: World, worker: Worker) -> None:
        self._gate = threading.Event()
        host: RealHost = here._hosts[here.workers.index(worker)]
        self._calls = [host.in_pool(self._gate.wait) for _ in range(64)]

    async def let_go(self) -> None:
        self._gate.set()
        for call in self._calls:
            await call


async def test_a_def_body_that_waited_for_a_thread_until_it_was_sent_again_elsewhere_does_not_begin(tmp_path: Path) -> None:
    async with world(tmp_path, write) as here:
        first = await here.worker(lease=LEASE, settling_max=0)
        busy = Busy(here, first)
        handle = await here.client.start(write.options(id="w"), "threaded")
        await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'unknown'") != [])
        await here.worker(lease=LEASE)
        await eventually(lambda: len(SENDS) == 1)
        await busy.let_go()
        assert await handle.result(timeout=20) in ("sent", "found")
        await here.stop(first)
        assert len(SENDS) == 1


async def test_a_def_body_that_waited_for_a_thread_past_its_timeout_is_known_not_to_have_left(tmp_path: Path) -> None:
    async with world(tmp_path, write) as here:
        first = await here.worker(lease=60_000_000, settling_max=0)
        busy = Busy(here, first)
        await here.client.start(write.options(id="w"), "threaded")
        await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'unknown'") != [])
        await busy.let_go()
        await eventually(lambda: here.rows("SELECT sends FROM operations WHERE state = 'resend'") == [(0,)])
        assert SENDS == []


async def test_a_def_body_whose_lease_ran_short_while_it_waited_for_a_thread_is_un_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, write) as here:
        worker = await here.worker()
        busy = Busy(here, worker)
        handle = await here.client.start(write.options(id="w"), "patient")
        await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'armed'") != [])
        monkeypatch.setattr(worker, "may_arm", lambda: False)
        await busy.let_go()
        await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'queued'") != [])
        assert SENDS == []
        assert worker.engine.slots.used == 0
        monkeypatch.undo()
        assert await handle.result(timeout=20) == "sent"
        assert len(SENDS) == 1
