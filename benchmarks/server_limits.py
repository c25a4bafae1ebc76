"""L2 on PostgreSQL: what the server does without an engine, through the engine's driver, each batch one statement and one commit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

from .figure import Benchmark, Figure, Samples
from .limits import PAYLOAD, RUNS
from .measures import percentile
from .plan import REST_S, Bench, Plan

SCHEMA = (
    "CREATE TABLE run (id bigint PRIMARY KEY, position bigint NOT NULL, status text NOT NULL) WITH (fillfactor = 60)",
    "CREATE TABLE step (run bigint NOT NULL, seq bigint NOT NULL, result bytea, PRIMARY KEY (run, seq))",
    f"INSERT INTO run SELECT n, 0, 'running' FROM generate_series(0, {RUNS - 1}) n",
    "SET synchronous_commit = on",
)
BATCH = (
    "WITH b AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS b (run, seq, result)), "
    "written AS (INSERT INTO step SELECT * FROM b) UPDATE run SET position = b.seq FROM b WHERE run.id = b.run"
)


def server(bench: Bench) -> Samples:
    """Commit batches of records, each one inserted row and one updated row, as durably as the engine does."""
    return asyncio.run(_measure(bench))


async def _measure(bench: Bench) -> Samples:
    opener: Any = asyncpg
    connection = await opener.connect(bench.database)
    for sql in SCHEMA:
        await connection.execute(sql)
    samples: Samples = {}
    first = 0
    for records, commits in bench.plan.commits:
        took = [await _commit(connection, range(first + n * records, first + (n + 1) * records)) for n in range(commits)]
        first += records * commits
        samples[f"L2.{records}"] = records * len(took) / sum(took)
        if records == 1:
            samples["L2.commit"] = percentile(took, 50) * 1e3
    rested = [await _commit(connection, range(first + n, first + n + 1), REST_S) for n in range(bench.plan.events)]
    samples["L2.rested"] = percentile(rested, 50) * 1e3
    await connection.close()
    samples["L2.batched"] = max(samples[f"L2.{records}"] for records, _ in bench.plan.commits)
    return samples


async def _commit(connection: Any, numbers: range, rest_s: float = 0.0) -> float:
    """Return the seconds that one statement took, its commit included, after a rest."""
    await asyncio.sleep(rest_s)
    started = time.perf_counter()
    await connection.execute(BATCH, [n % RUNS for n in numbers], [n // RUNS for n in numbers], [PAYLOAD for _ in numbers])
    return time.perf_counter() - started


def _figures(plan: Plan) -> tuple[Figure, ...]:
    rates = (
        Figure(f"L2.{records}", f"PostgreSQL, {records} records a statement and commit", "records/s", "L1") for records, _ in plan.commits
    )
    batched = Figure("L2.batched", "PostgreSQL, the best of these", "records/s", "L1")
    rested = Figure("L2.rested", f"the same after {REST_S * 1e3:g} ms of rest, p50", "ms", "L2.commit")
    return (*rates, batched, Figure("L2.commit", "PostgreSQL, one statement of one record, p50", "ms"), rested)


SERVER = Benchmark("server", _figures, server)
