"""L1 and L2: what the disk and SQLite do without an engine, on the file system that the databases are on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from .figure import Benchmark, Figure, Samples
from .measures import median, percentile
from .plan import REST_S, Bench, Plan

BLOCK = 4096
RUNS = 1_000  # rows that are updated in turn
PAYLOAD = b'{"i":123,"ok":true,"name":"step"}'
SCHEMA = (
    "CREATE TABLE run (id INTEGER PRIMARY KEY, position INTEGER NOT NULL, status TEXT NOT NULL)",
    "CREATE TABLE step (run INTEGER NOT NULL, seq INTEGER NOT NULL, result BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID",
)


def disk(bench: Bench) -> Samples:
    """Append 4 KiB and fdatasync, again and again."""
    took = list(_appends(bench.directory / "limit", bench.plan.appends))
    return {"L1": len(took) / sum(took), "L1.p50": median(took) * 1e6}


def _appends(path: Path, count: int) -> Iterator[float]:
    block = os.urandom(BLOCK)
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            yield time.perf_counter() - started


def sqlite(bench: Bench) -> Samples:
    """Commit batches of records, each one inserted row and one updated row, as durably as the engine does."""
    samples: Samples = {}
    for records, commits in bench.plan.commits:
        took = _commits(bench.directory / f"batch-{records}.db", records, commits)
        samples[f"L2.{records}"] = records * len(took) / sum(took)
        if records == 1:
            samples["L2.commit"] = percentile(took, 50) * 1e3
    samples["L2.batched"] = max(samples[f"L2.{records}"] for records, _ in bench.plan.commits)
    samples["L2.rested"] = percentile(_commits(bench.directory / "rested.db", 1, bench.plan.events, REST_S), 50) * 1e3
    return samples


def _commits(path: Path, records: int, commits: int, rest_s: float = 0.0) -> list[float]:
    """Return the seconds each commit took, begin to end, each after a rest."""
    connection = _database(path)
    took: list[float] = []
    for number in range(commits):
        time.sleep(rest_s)
        started = time.perf_counter()
        _commit(connection, range(number * records, (number + 1) * records))
        took.append(time.perf_counter() - started)
    connection.close()
    return took


def _database(path: Path) -> Any:
    connection: Any = apsw.Connection(str(path))
    for sql in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *SCHEMA):
        connection.execute(sql).fetchall()
    with connection:
        connection.executemany("INSERT INTO run VALUES (?, 0, 'running')", [(run,) for run in range(RUNS)])
    return connection


def _commit(connection: Any, numbers: range) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO step VALUES (?, ?, ?)", [(n % RUNS, n // RUNS, PAYLOAD) for n in numbers])
    connection.executemany("UPDATE run SET position = ? WHERE id = ?", [(n // RUNS, n % RUNS) for n in numbers])
    connection.execute("COMMIT")


def _disk_figures(plan: Plan) -> tuple[Figure, ...]:
    return (Figure("L1", "append 4 KiB + fdatasync", "/s"), Figure("L1.p50", "one append, p50", "µs"))


def _sqlite_figures(plan: Plan) -> tuple[Figure, ...]:
    rates = (Figure(f"L2.{records}", f"SQLite, {records} records a commit", "records/s", "L1") for records, _ in plan.commits)
    batched = Figure("L2.batched", "SQLite, the best of these", "records/s", "L1")
    rested = Figure("L2.rested", f"the same after {REST_S * 1e3:g} ms of rest, p50", "ms", "L2.commit")
    return (*rates, batched, Figure("L2.commit", "SQLite, one commit of one record, p50", "ms"), rested)


DISK = Benchmark("L1", _disk_figures, disk)
SQLITE = Benchmark("L2", _sqlite_figures, sqlite)
