"""Long histories and many parked runs cost what they hold and no more. Times are the benchmarks' business, except at full length."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.cases.apps.scale import long, parked
from tests.processes.stage import FULL, Process, Stage, on_both_stores

pytestmark = [pytest.mark.process, on_both_stores]
APP = "tests.cases.apps.scale:app"
STEPS = 20_000 if FULL else 2_000
PARKED, GROWTH_MAX_MB = (10_000, 200) if FULL else (2_000, 60)


def _rss_mb(process: Process) -> float:
    (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def _per_hundred(stage: Stage, start: int) -> float:
    """Return the median time of a hundred steps among the 5,000 from *start*: others use this machine too."""
    times = [
        at for (at,) in stage.rows("SELECT at FROM journal WHERE position % 100 = 0 AND position BETWEEN ? AND ?", start, start + 5_000)
    ]
    return median(after - before for before, after in pairwise(sorted(times)))


@pytest.mark.timeout(600)
async def test_a_long_run_costs_the_same_per_step_at_its_end_as_at_its_beginning(stage: Stage) -> None:
    """RB-35: bytes stored and changed for each step; with CASES_FULL also the time."""
    worker, empty = await stage.worker(APP), stage.store.size()
    handle = await stage.client.start(long.options(id="r"), STEPS)
    await stage.until(lambda: stage.rows("SELECT coalesce(max(position), 0) FROM journal")[0][0] >= STEPS // 4, "a quarter is done")
    quarter = _rss_mb(worker)
    assert await handle.result(timeout=500) == STEPS

    ((bodies, others),) = stage.rows("SELECT sum(length(body)), sum(length(info) + length(digest) + length(name)) FROM journal")
    assert bodies == STEPS * 1_002
    assert others < STEPS * 40
    assert stage.store.size() - empty < STEPS * 1_600 + 1_000_000
    assert _rss_mb(worker) - quarter < STEPS * 0.006 + 20  # what the run itself holds: one value of 1 kB at a time, and its loop
    if FULL:
        assert _per_hundred(stage, STEPS - 5_000) <= 3 * _per_hundred(stage, 1_000)
    stage.whole()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
async def test_parked_runs_leave_a_workers_memory(stage: Stage) -> None:
    """RB-35."""
    worker = await stage.worker(APP)
    await (await stage.client.start(long, 10)).result(timeout=30)
    before = _rss_mb(worker)
    for begin in range(0, PARKED, 500):
        await asyncio.gather(*(stage.client.start(parked, n) for n in range(begin, begin + 500)))
    await stage.until(lambda: stage.rows("SELECT count(*) FROM runs WHERE status = 'waiting'") == [(PARKED,)], "all are parked")
    assert _rss_mb(worker) - before < GROWTH_MAX_MB
    assert stage.rows("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == [(0,)]
