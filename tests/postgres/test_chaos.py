"""Worker processes killed, frozen and started at random under load: every promise of DESIGN 9 holds in what the database says after."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

import romulus
from tests.postgres.chaos_worker import STEPS, chaotic
from tests.postgres.server import Database
from tests.repo.files import ROOT

RUNS = 60
SECONDS = float(os.environ.get("CHAOS_S", "8"))  # a minute shows more, and takes one
FROZEN_S = 3.0  # longer than the lease

BODIES = (
    "CREATE TABLE bodies (run text, number integer, attempt integer, fence bigint, pid integer, at timestamptz DEFAULT clock_timestamp())"
)


class Processes:
    """The worker processes that run now."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.all: list[subprocess.Popen[bytes]] = []
        self._frozen: dict[int, asyncio.TimerHandle] = {}

    def start(self) -> None:
        program = Path(__file__).with_name("chaos_worker.py")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.all.append(
            subprocess.Popen(
                [sys.executable, str(program), self._url], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self.all.remove(process)
        process.kill()
        process.wait(10)

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a process past its lease, then let it go on as if nothing had been."""
        process.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(FROZEN_S, self._thaw, process)

    def _thaw(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in tuple(self.all):
            self.kill(process)


@pytest.fixture
async def processes(database: Database) -> AsyncIterator[Processes]:
    database.execute("DROP TABLE IF EXISTS bodies")
    database.execute(BODIES)
    processes = Processes(database.url)
    yield processes
    processes.end()


@pytest.mark.process
@pytest.mark.timeout(240)
async def test_every_promise_holds_while_workers_are_killed_and_frozen(database: Database, processes: Processes) -> None:
    random = Random(3)
    async with romulus.AsyncClient(romulus.App(database.url, workflows=[chaotic])) as client:
        handles = await asyncio.gather(*(client.start(chaotic.options(id=f"r{n}"), n) for n in range(RUNS)))
        for _ in range(3):
            processes.start()
        senders = [asyncio.ensure_future(send_later(client, n, random.uniform(0, SECONDS))) for n in range(RUNS)]
        await disturb(processes, random)
        await asyncio.gather(*senders)
        for _ in range(2):
            processes.start()
        results = await asyncio.gather(*(handle.result(timeout=120) for handle in handles))

    assert results == [n + STEPS + 2 + n for n in range(RUNS)]
    check(database)


async def send_later(client: romulus.AsyncClient, number: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    for _ in range(2):  # the second is a duplicate
        await client.send_event("go", number, correlation_id=f"r{number}", event_id=f"go-{number}")


async def disturb(processes: Processes, random: Random) -> None:
    """Kill, freeze and start processes for the while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SECONDS
    while loop.time() < until:
        await asyncio.sleep(random.uniform(0.3, 1.2))
        victim = random.choice(processes.all)
        if random.random() < 0.5:
            processes.kill(victim)
            processes.start()
        else:
            processes.freeze(victim)


def check(database: Database) -> None:
    """Each line is a promise, asked of the database."""
    rows = database.execute
    assert rows("SELECT DISTINCT status FROM romulus.runs") == [("succeeded",)]
    assert rows("SELECT count(*) > 0 FROM bodies WHERE attempt > 1") == [(True,)], "nothing was lost: this shows nothing"
    # 1, 2: every body ran under an attempt of its own, and none after the attempt whose outcome is recorded.
    assert rows("SELECT count(*) - count(DISTINCT (run, number, attempt)) FROM bodies") == [(0,)]
    late = """SELECT b.run, b.number FROM bodies b JOIN romulus.runs r ON r.id = b.run
        JOIN romulus.journal j ON j.run = r.key AND j.kind = 'step' AND convert_from(j.body, 'utf8')::integer = b.number + 1
        WHERE b.attempt > j.attempt"""
    assert rows(late) == []
    # 3: claims follow each other; the journal has no gap, and no entry of an older claim after one of a newer.
    assert rows("SELECT run FROM romulus.journal GROUP BY run HAVING max(position) + 1 <> count(*)") == []
    order = """SELECT run FROM (SELECT run, fence, lag(fence) OVER (PARTITION BY run ORDER BY position) AS before FROM romulus.journal) x
        WHERE fence < before"""
    assert rows(order) == []
    assert rows("SELECT DISTINCT count(*) FROM romulus.journal WHERE kind = 'step' GROUP BY run") == [(STEPS + 2,)]
    # 5: each event is in exactly one entry.
    assert rows("SELECT count(*) FROM romulus.dealt WHERE how = 'consumed'") == [(RUNS,)]
    assert rows("SELECT count(*) FROM romulus.journal WHERE kind = 'wait'") == [(RUNS,)]
    # Nothing is left of claims, waits and queues.
    assert rows("SELECT count(*) FROM romulus.runs WHERE owner IS NOT NULL") == [(0,)]
    assert rows("SELECT (SELECT count(*) FROM romulus.waits) + (SELECT count(*) FROM romulus.attempts)") == [(0,)]
