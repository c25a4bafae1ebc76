"""Claim latency: how long a worker takes to claim a due run beside few and beside very many parked ones."""

from __future__ import annotations

import time
from typing import Any

import apsw

import romulus
from romulus.core.machine import RunStatus
from romulus.core.ports import ProcessIdentity
from romulus.core.record import WorkerRow
from romulus.store.contract import ClaimRequest, Store

from .engine import Observer, run, working
from .figure import Benchmark, Figure, Samples, at_most
from .measures import percentile
from .plan import Bench, Plan
from .workflows import WORKFLOWS, sleeping

RATIO_MAX = 1.5
LEASE = 600_000_000  # µs: nothing renews it
PAGES_KB = 512_000  # SQLite's cache while rows are cloned


def claims(bench: Bench) -> Samples:
    """Park one run, clone its rows, and time the claim of a fresh run; few clones first, then many in the same file."""
    few, many = bench.plan.parked_rows
    run(bench.plan, _park_one(bench))
    samples: Samples = {}
    cloned = 1
    for key, rows in (("few", few), ("many", many)):
        _clone(bench, rows - cloned)
        cloned = rows
        samples[f"claim.{key}"] = percentile(run(bench.plan, _claims(bench)), 50) * 1e3
    samples["claim.ratio"] = samples["claim.many"] / samples["claim.few"]
    return samples


async def _park_one(bench: Bench) -> None:
    async with working(bench.url(), bench.plan.concurrency) as client:
        observer = Observer(bench.url())
        await client.start(sleeping)
        await observer.until("waiting", 1)
        observer.close()


def _clone(bench: Bench, count: int) -> None:
    """Insert *count* copies of the parked run, with keys, ID and due time of their own: its row and its generation."""
    connection: Any = apsw.Connection(str(bench.directory / "bench.db"))
    connection.execute(f"PRAGMA cache_size = -{PAGES_KB}").fetchall()
    (run_key, generation), *_ = connection.execute("SELECT key, generation_key FROM runs WHERE status = 'waiting' ORDER BY key").fetchall()
    with connection:
        first = _highest(connection, "runs") + 1
        first_generation = _highest(connection, "generations") + 1
        own = {"key": f"{first} + n", "generation_key": f"{first_generation} + n", "id": f"id || '~' || ({first} + n)"}
        own |= {"wake_at": "wake_at + n", "queue_at": "queue_at + n"}
        _insert(connection, "runs", own, run_key, count)
        _insert(connection, "generations", {"key": f"{first_generation} + n", "run": f"{first} + n"}, generation, count)
    connection.close()


def _highest(connection: Any, table: str) -> int:
    return int(connection.execute(f"SELECT max(key) FROM {table}").fetchall()[0][0])


def _insert(connection: Any, table: str, own: dict[str, str], key: int, count: int) -> None:
    """Copy the row *key* of *table* that many times; *own* has the columns that differ, by an expression of n."""
    columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
    values = ", ".join(own.get(column, column) for column in columns)
    connection.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM numbers CROSS JOIN (SELECT * FROM {table} WHERE key = ?)",
        (count, key),
    ).fetchall()


async def _claims(bench: Bench) -> list[float]:
    """Return the seconds each claim of one due run took, its commit included."""
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    async with app.client() as client:
        opened = await app.source.acquire()
        row = _worker(opened.host.identity, app.namespace)
        lease = await opened.store.register(row, LEASE)
        serves = [(name, version, digest) for (name, version), digest in app.registry.digests.items()]
        took: list[float] = []
        for _ in range(bench.plan.claims):
            await client.start(sleeping)
            took.append(await _claim(opened.store, ClaimRequest(row.id, app.namespace, serves, limit=1)))
        lease.close()
        await opened.store.deregister(row.id)
        await app.source.release()
        return took


def _worker(who: ProcessIdentity, namespace: str) -> WorkerRow:
    """Return a worker's row: only a registered worker may claim."""
    return WorkerRow(
        f"benchmark-{who.pid}", namespace, "benchmark", who.host, who.boot, who.pid, who.pid_start, who.pid_namespace,
        workflows="[]", pools="[]", operations="[]", concurrency=1, started_at=0, renewed_at=0, lease_until=0,
    )  # fmt: skip


async def _claim(store: Store, request: ClaimRequest) -> float:
    started = time.perf_counter()
    claimed = await store.claim(request, RunStatus.RUNNING)
    took = time.perf_counter() - started
    assert len(claimed.records) == 1, "the run that was just started must be claimed"
    return took


def _figures(plan: Plan) -> tuple[Figure, ...]:
    few, many = plan.parked_rows
    return (
        Figure("claim.few", f"claim of a due run beside {few:,} parked, p50", "ms", "L2.commit"),
        Figure("claim.many", f"claim of a due run beside {many:,} parked, p50", "ms", "L2.commit"),
        Figure("claim.ratio", "the second by the first", "×", None, (at_most(RATIO_MAX, "×"),)),
    )


CLAIMS = Benchmark("claim", _figures, claims)
