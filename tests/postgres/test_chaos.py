"""Worker processes killed, frozen and started at random under load: every promise of DESIGN 9 holds in what the database says after."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import romulus
from tests.postgres.chaos_worker import STEPS, chaotic
from tests.postgres.kit import until
from tests.postgres.server import Database
from tests.repo.files import ROOT

RUNS = int(os.environ.get("CHAOS_RUNS", "80"))
SECONDS = float(os.environ.get("CHAOS_S", "8"))  # a minute shows more, and takes one
FROZEN_S = 3.0  # longer than the lease

TABLES = (
    "DROP TABLE IF EXISTS bodies, sends; CREATE TABLE sends (operation text, pid bigint); CREATE TABLE bodies (run text, number bigint, "
    "token text, attempt bigint, fence bigint, pid bigint, recorded boolean)"
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
    database.execute(TABLES)
    processes = Processes(database.url)
    yield processes
    processes.end()


@pytest.mark.process
@pytest.mark.timeout(240)
async def test_every_promise_holds_while_workers_are_killed_and_frozen(database: Database, processes: Processes) -> None:
    random = Random(3)
    async with romulus.AsyncClient(romulus.App(database.url, workflows=[chaotic])) as client:
        for _ in range(3):
            processes.start()
        await until(lambda: database.execute("SELECT count(*) >= 3 FROM romulus.workers") == [(True,)])
        lives = [asyncio.ensure_future(live(client, n, random.uniform(0, SECONDS), random.uniform(0, 3))) for n in range(RUNS)]
        await disturb(database, processes, random)
        for _ in range(2):
            processes.start()
        results = await asyncio.gather(*lives)

    assert results == [n + STEPS + 2 + n for n in range(RUNS)]
    check(database.execute)
    for harm in HARMS:
        with database.server.connect(database.name) as connection:
            connection.execute("BEGIN")
            assert connection.execute(harm).rowcount > 0, harm
            with pytest.raises(AssertionError):
                check(lambda sql, harmed=connection: harmed.execute(sql).fetchall())
            connection.execute("ROLLBACK")


async def live(client: romulus.AsyncClient, number: int, begins: float, waits: float) -> int:
    """Start a run at its time, send it its event twice some time later, and return its result."""
    await asyncio.sleep(begins)
    handle = await client.start(chaotic.options(id=f"r{number}"), number)
    await asyncio.sleep(waits)
    for _ in range(2):
        await client.send_event("go", number, correlation_id=f"r{number}", event_id=f"go-{number}")
    return await handle.result(timeout=120, raise_on_hold=True)


async def disturb(database: Database, processes: Processes, random: Random) -> None:
    """Kill, freeze and start processes for the while, each time after some work was done: runs that lose every worker are held."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    while loop.time() < end:
        ((done,),) = database.execute("SELECT count(*) FROM romulus.journal")
        await asyncio.sleep(random.uniform(0.3, 1.2))
        await until(
            lambda done=done: database.execute("SELECT count(*) > %s FROM romulus.journal", done + 20) == [(True,)] or loop.time() > end
        )
        victim = random.choice(processes.all)
        if random.random() < 0.5:
            processes.kill(victim)
            processes.start()
        else:
            processes.freeze(victim)


REFUSED = """SELECT e.run FROM romulus.evidence e JOIN romulus.journal j ON j.run = e.run
    AND j.transition = (e.detail::json ->> 'transition')::bigint WHERE e.kind = 'late_transition'"""


EVIDENCE = "INSERT INTO romulus.evidence (run, at, fence, kind, owner, detail)"
# What a broken promise would look like, one each: the check has to see it.
HARMS = (
    "UPDATE romulus.runs SET status = 'failed' WHERE id = 'r1'",
    "INSERT INTO bodies SELECT * FROM bodies LIMIT 1",
    "INSERT INTO bodies SELECT run, number, token, 99, fence, pid, recorded FROM bodies LIMIT 1",
    "UPDATE bodies SET recorded = false WHERE run = 'r1'",
    "DELETE FROM romulus.journal WHERE run = (SELECT min(key) FROM romulus.runs) AND position = 2",
    "UPDATE romulus.journal SET fence = 1 WHERE run = (SELECT min(key) FROM romulus.runs) AND position = 2",
    f"{EVIDENCE} SELECT key, 0, fence + 1, 'late_transition', '', '{{\"transition\": 0}}' FROM romulus.runs WHERE id = 'r1'",
    f"{EVIDENCE} SELECT run, 0, fence, 'late_transition', '', json_build_object('transition', transition) FROM romulus.journal LIMIT 1",
    "DELETE FROM romulus.events WHERE id = 'go-1'",
    "INSERT INTO romulus.dealt SELECT event, run + 1, how FROM romulus.dealt LIMIT 1",
    "INSERT INTO sends SELECT * FROM sends LIMIT 1",
    "UPDATE romulus.operations SET state = 'unknown' WHERE run = (SELECT min(key) FROM romulus.runs)",
    "UPDATE bodies SET token = 'another' WHERE run = 'r1' AND number = 3",
    "UPDATE romulus.runs SET owner = 'w' WHERE id = 'r1'",
)


def check(rows: Callable[[str], list[Any]]) -> None:
    """Each line is a promise, asked of the database."""
    assert rows("SELECT DISTINCT status FROM romulus.runs") == [("succeeded",)]
    assert rows("SELECT count(*) > 0 FROM bodies WHERE attempt > 1") == [(True,)], "nothing was lost: this shows nothing"
    # 1: every body ran under an attempt of its own, and none under a later one than that whose outcome is recorded.
    assert rows("SELECT count(*) - count(DISTINCT (run, number, attempt)) FROM bodies") == [(0,)]
    late = """SELECT b.run, b.number FROM bodies b JOIN romulus.runs r ON r.id = b.run
        JOIN romulus.journal j ON j.run = r.key AND j.kind = 'step' AND convert_from(j.body, 'utf8')::integer = b.number + 1
        WHERE b.attempt > j.attempt"""
    assert rows(late) == []
    # 2: the record told of each attempt before its body did anything.
    assert rows("SELECT run, number, attempt FROM bodies WHERE recorded IS NOT TRUE") == []
    # 3: claims follow each other; the journal has no gap, and no entry of an older claim after one of a newer.
    assert rows("SELECT run FROM romulus.journal GROUP BY run HAVING max(position) + 1 <> count(*)") == []
    order = """SELECT run FROM (SELECT run, fence, lag(fence) OVER (PARTITION BY run ORDER BY position) AS before FROM romulus.journal) x
        WHERE fence < before"""
    assert rows(order) == []
    assert rows("SELECT DISTINCT count(*) FROM romulus.journal WHERE kind = 'step' GROUP BY run") == [(STEPS + 2,)]
    # 4: what was refused stands as evidence, under an older claim, and in no journal.
    assert rows("SELECT count(*) FROM romulus.evidence e JOIN romulus.runs r ON r.key = e.run WHERE e.fence > r.fence") == [(0,)]
    assert rows(REFUSED) == []
    # 5: each event was taken once, though sent twice, and is in exactly one entry.
    assert rows("SELECT count(*) FROM romulus.events") == [(RUNS,)]
    assert rows("SELECT count(*) FROM romulus.dealt WHERE how = 'consumed'") == [(RUNS,)]
    assert rows("SELECT count(*) FROM romulus.journal WHERE kind = 'wait'") == [(RUNS,)]
    # 6: no operation was sent again that may have been applied.
    assert rows("SELECT count(*), count(DISTINCT operation) FROM sends") == [(RUNS, RUNS)]
    assert rows("SELECT DISTINCT state, count(*) FROM romulus.operations GROUP BY 1") == [("confirmed", RUNS)]
    # 8: each pass of a run, wherever it was, drew the same UUID, and no two runs the same one.
    assert rows("SELECT count(DISTINCT token), count(DISTINCT (run, token)) FROM bodies") == [(RUNS, RUNS)]
    # Nothing is left of claims, waits and queues.
    assert rows("SELECT count(*) FROM romulus.runs WHERE owner IS NOT NULL") == [(0,)]
    assert rows("SELECT (SELECT count(*) FROM romulus.waits) + (SELECT count(*) FROM romulus.attempts)") == [(0,)]
