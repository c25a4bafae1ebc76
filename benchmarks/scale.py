"""Growth on PostgreSQL: idle workers beside very many parked runs, what wear leaves behind, long journals, an outage's backlog."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import romulus

from .child import LAUNCH
from .children import Child
from .copying import ServerCopies, server_copies
from .engine import batch, one_run, run, working
from .figure import Benchmark, Figure, Samples, at_most
from .measures import median, percentile
from .observing import Observer
from .plan import Bench, Plan
from .processor import server_seconds
from .workflows import WORKFLOWS, sleeping

IDLE_MAX = 5.0  # % of one core
WEAR_MAX = 2.0
READ_RATIO_MAX = 1.5
SETTLE_S = 3.0
LARGE = 1 << 20  # bytes: smaller tables and indexes have no ratio worth the name
HISTORY = 1_000  # entries of a run
SIZES = (
    "SELECT c.relname, c.relkind::text, pg_relation_size(c.oid) FROM pg_class c WHERE c.relnamespace = 'romulus'::regnamespace "
    "AND c.relkind IN ('r', 'i')"
)


# ---- idle ------------------------------------------------------------------------------------------


def idle(bench: Bench) -> Samples:
    """Let workers stand by beside parked runs of which none is due, and read the processor time of the server."""
    plan = bench.plan
    run(plan, _park_one(bench))
    with server_copies(bench.url()) as copied:
        copied.parked(plan.parked_rows[1] - 1)
        copied.tidy()
        with ExitStack() as stack:
            for _ in range(plan.idle_workers):
                stack.enter_context(Child(bench, "work")).wait_for(LAUNCH)
            time.sleep(SETTLE_S)
            pid = copied.one("SELECT pg_backend_pid()")
            before, begun = server_seconds(pid), time.monotonic()
            time.sleep(plan.idle_s)
            return {"idle": (server_seconds(pid) - before) / (time.monotonic() - begun) * 100}


async def _park_one(bench: Bench) -> None:
    async with working(bench.url(), bench.plan.concurrency) as client:
        observer = Observer(bench.url())
        await client.start(sleeping)
        await observer.until("waiting", 1)
        observer.close()


# ---- wear ------------------------------------------------------------------------------------------


def wear(bench: Bench) -> Samples:
    """Do very many steps, then compare each table and index with itself written anew."""
    run(bench.plan, _work(bench))
    with server_copies(bench.url()) as copied:
        worn = _sizes(copied)
        copied.execute("VACUUM FULL")
        anew = _sizes(copied)
        large = [name for name, (_, size) in anew.items() if size >= LARGE] or list(anew)
        entries, runs = copied.one("SELECT count(*) FROM journal"), copied.one("SELECT count(*) FROM runs")

    def worst(kind: str) -> float:
        return max(worn[name][1] / max(anew[name][1], 1) for name in large if worn[name][0] == kind and anew[name][1])

    def taken(*parts: str) -> int:
        return sum(size for name, (_, size) in worn.items() if name.startswith(parts))

    return {
        "wear.table": worst("r"), "wear.index": worst("i"),
        "wear.queues": sum(worn[name][1] for name in worn.keys() - set(large)) / 2**20,
        "size.step": taken("journal") / entries, "size.run": taken("runs", "generations") / runs,
    }  # fmt: skip


async def _work(bench: Bench) -> None:
    plan, done = bench.plan, 0
    async with working(bench.url(), plan.concurrency) as client:
        while done < plan.worn_steps:
            await batch(client, plan.runs, plan.steps)
            done += plan.runs * plan.steps


def _sizes(copied: ServerCopies) -> dict[str, tuple[str, int]]:
    """Return of each table and index: its kind, its bytes."""
    return {name: (kind, int(size)) for name, kind, size in copied.rows(SIZES)}


# ---- journal ---------------------------------------------------------------------------------------


def journal(bench: Bench) -> Samples:
    """Read the history of a run of many steps alone, then among very many rows, made with SQL."""
    plan = bench.plan
    entries = min(HISTORY, plan.journal_rows)
    run(plan, _one_history(bench, entries))
    alone = run(plan, _reads(bench))
    with server_copies(bench.url()) as copied:
        started = time.perf_counter()
        copied.finished(plan.journal_rows // entries - 1)
        took = time.perf_counter() - started
        copied.tidy()
        sizes, rows = _sizes(copied), copied.one("SELECT count(*) FROM journal")
    among = run(plan, _reads(bench))
    return {
        "journal.insert": rows / took, "journal.row": sizes["journal"][1] / rows, "journal.index": sizes["journal_position"][1] / rows,
        "journal.alone": alone, "journal.read": among, "journal.ratio": among / alone,
    }  # fmt: skip


async def _one_history(bench: Bench, entries: int) -> None:
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    async with app.worker(concurrency=bench.plan.concurrency), app.client() as client:
        await one_run(client, entries)


async def _reads(bench: Bench) -> float:
    """Return the median ms that reading the first run's history takes."""
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    opened = await app.source.acquire()
    ((key,),) = [(generation.key,) for generation in await opened.store.generations(1)]
    took: list[float] = []
    for _ in range(bench.plan.claims):
        started = time.perf_counter()
        await opened.store.history(key, 0, HISTORY)
        took.append(time.perf_counter() - started)
    await app.source.release()
    return median(took) * 1e3


# ---- outage ----------------------------------------------------------------------------------------


def outage(bench: Bench) -> Samples:
    """Let very many timers be due when a worker begins, and start a run of another workflow now and then."""
    run(bench.plan, _park_one(bench))
    with server_copies(bench.url()) as copied:
        copied.due(bench.plan.due_rows)
        copied.tidy()
        return run(bench.plan, _backlog(bench, copied))


async def _backlog(bench: Bench, copied: ServerCopies) -> Samples:
    plan, took = bench.plan, list[float]()
    app = romulus.App(bench.url(), workflows=WORKFLOWS)
    async with app.worker(concurrency=plan.concurrency), app.client() as client:
        begun, before = time.perf_counter(), _due(copied)
        for _ in range(plan.single_runs):
            took.append(await one_run(client, 1))
            await asyncio.sleep(0.01)
        return {"outage.rate": (before - _due(copied)) / (time.perf_counter() - begun), "outage.new": percentile(took, 50) * 1e3}


def _due(copied: ServerCopies) -> int:
    return int(copied.one("SELECT count(*) FROM runs WHERE queue_at <= clock()"))


# ---- figures ---------------------------------------------------------------------------------------


def _idle(plan: Plan) -> tuple[Figure, ...]:
    what = f"{plan.idle_workers} workers, {plan.parked_rows[1]:,} parked runs, nothing due: processor time of the server"
    return (Figure("idle", what, "% of a core", None, (at_most(IDLE_MAX, "%"),)),)


def _wear(plan: Plan) -> tuple[Figure, ...]:
    what = f"after {plan.worn_steps:,} steps"
    return (
        Figure("wear.table", f"{what}: the worst table, by its size written anew", "×", None, (at_most(WEAR_MAX, "×"),)),
        Figure("wear.index", f"{what}: the worst index", "×", None, (at_most(WEAR_MAX, "×"),)),
        Figure("wear.queues", f"{what}: all tables and indexes below 1 MiB when written anew, together", "MiB"),
        Figure("size.step", f"{what}: journal and its index, each step", "bytes"),
        Figure("size.run", f"{what}: row, generation and their indexes, each run of {plan.steps} steps", "bytes"),
    )


def _journal(plan: Plan) -> tuple[Figure, ...]:
    entries = min(HISTORY, plan.journal_rows)
    return (
        Figure("journal.insert", f"{plan.journal_rows:,} journal rows inserted by SQL", "rows/s"),
        Figure("journal.row", "the journal, each row", "bytes"),
        Figure("journal.index", "its index, each row", "bytes"),
        Figure("journal.alone", f"history of {entries:,} entries read, nothing else there, p50", "ms"),
        Figure("journal.read", "the same among all of them", "ms"),
        Figure("journal.ratio", "the second by the first", "×", None, (at_most(READ_RATIO_MAX, "×"),)),
    )


def _outage(plan: Plan) -> tuple[Figure, ...]:
    return (
        Figure("outage.rate", f"{plan.due_rows:,} timers due at once: claimed and parked again", "runs/s"),
        Figure("outage.new", "meanwhile a run of another workflow, start to result, p50", "ms", "L2.commit"),
    )


IDLE = Benchmark("idle", _idle, idle)
WEAR = Benchmark("wear", _wear, wear)
JOURNAL = Benchmark("journal", _journal, journal)
OUTAGE = Benchmark("outage", _outage, outage)
