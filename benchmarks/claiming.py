"""Claim latency: how long a worker takes to claim a due run beside few and beside very many parked ones, and, on PostgreSQL, beside very
many finished ones, and while somebody's transaction stays open."""

from __future__ import annotations

import time

import romulus
from romulus.core.machine import RunStatus
from romulus.core.ports import ProcessIdentity
from romulus.core.record import WorkerRow
from romulus.store.contract import ClaimRequest, Store

from .copying import copies
from .engine import one_run, run, working
from .figure import Benchmark, Figure, Samples, at_most
from .measures import percentile
from .observing import Observer
from .plan import POSTGRES, Bench, Plan
from .workflows import WORKFLOWS, sleeping

RATIO_MAX = 1.5
OPEN_RATIO_MAX = 3.0
LEASE = 600_000_000  # µs: nothing renews it


def claims(bench: Bench) -> Samples:
    """Park one run, clone its rows, and time the claim of a fresh run; few clones first, then many in the same store."""
    plan = bench.plan
    few, many = plan.parked_rows
    run(plan, _park_one(bench))
    with copies(bench.url()) as copied:
        copied.parked(few - 1)
        samples = {"claim.few": _percentile(bench)}
        copied.parked(many - few)
        if plan.store == POSTGRES:
            copied.finished(plan.finished_rows)
        copied.tidy()
        samples["claim.many"] = _percentile(bench)
        samples["claim.ratio"] = samples["claim.many"] / samples["claim.few"]
        if plan.store == POSTGRES:
            with copied.open_transaction():
                copied.taken(plan.taken_rows)
                samples["claim.open"] = _percentile(bench)
            samples["claim.open_ratio"] = samples["claim.open"] / samples["claim.few"]
    return samples


def _percentile(bench: Bench) -> float:
    return percentile(run(bench.plan, _claims(bench)), _percent(bench.plan)) * 1e3


def _percent(plan: Plan) -> int:
    return 95 if plan.store == POSTGRES else 50


async def _park_one(bench: Bench) -> None:
    async with working(bench.url(), bench.plan.concurrency) as client:
        observer = Observer(bench.url())
        await one_run(client, 1)
        await client.start(sleeping)
        await observer.until("waiting", 1)
        observer.close()


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
    what, p = "claim of a due run beside", f"p{_percent(plan)}"
    beside = f" and {plan.finished_rows:,} finished" if plan.store == POSTGRES else ""
    figures = (
        Figure("claim.few", f"{what} {few:,} parked, {p}", "ms", "L2.commit"),
        Figure("claim.many", f"{what} {many:,} parked{beside}, {p}", "ms", "L2.commit"),
        Figure("claim.ratio", "the second by the first", "×", None, (at_most(RATIO_MAX, "×"),)),
    )
    if plan.store != POSTGRES:
        return figures
    return (
        *figures,
        Figure("claim.open", f"the second after {plan.taken_rows:,} claims while a transaction stayed open, {p}", "ms", "L2.commit"),
        Figure("claim.open_ratio", "that by the first", "×", None, (at_most(OPEN_RATIO_MAX, "×"),)),
    )


CLAIMS = Benchmark("claim", _figures, claims)
