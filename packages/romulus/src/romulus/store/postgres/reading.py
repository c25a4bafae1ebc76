"""Reads: a run, its record, its history, and listings that page in the order of creation."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString, TypeVar

from romulus.core.machine import RunStatus
from romulus.core.record import Entry, Generation, Record, Run
from romulus.store.contract import Evidence, Listed, RunFilter, StoredEvent, StoredWait
from romulus.store.paging import page, position

from .rows import (
    ENTRY,
    FROM_RUNS,
    GENERATION,
    ITS_GENERATION,
    ITSELF,
    RECORD,
    RUN,
    RUN_OF_NAME,
    Row,
    entry_of,
    generation_of,
    generation_parts,
    record_of,
    run_and_generation_of,
    run_of,
)  # fmt: skip
from .session import Session

T = TypeVar("T")

# An event's state follows from what is beside it: a wait that holds it, or what became of it. Nothing keeps a second copy of that.
HELD: Final[LiteralString] = "EXISTS (SELECT 1 FROM romulus.waits w WHERE w.event = e.arrival)"
CONSUMED: Final[LiteralString] = "EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = e.arrival AND d.how = 'consumed')"
BAD: Final[LiteralString] = "EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = e.arrival AND d.how = 'bad')"
FREE: Final[LiteralString] = f"NOT {HELD} AND NOT {CONSUMED} AND NOT {BAD}"
EVENT: Final[LiteralString] = (
    "e.id, e.name, e.correlation_id, e.payload, e.received_at, "
    f"CASE WHEN {CONSUMED} THEN 'consumed' WHEN {BAD} THEN 'bad' WHEN {HELD} THEN 'matched' ELSE 'unmatched' END, "
    "EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = e.arrival AND d.how = 'late'), "
    "(SELECT r.id FROM romulus.runs r WHERE r.key = coalesce("
    "(SELECT d.run FROM romulus.dealt d WHERE d.event = e.arrival AND d.how <> 'late' ORDER BY d.how DESC, d.run LIMIT 1), "
    "(SELECT w.run FROM romulus.waits w WHERE w.event = e.arrival ORDER BY w.key LIMIT 1)))"
)
WAIT: Final[LiteralString] = (
    "(SELECT r.id FROM romulus.runs r WHERE r.key = w.run), w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.opened_at, "
    "(SELECT e.id FROM romulus.events e WHERE e.arrival = w.event)"
)
NAMED: Final[LiteralString] = (
    f"SELECT {RECORD} FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) n (namespace, id)) n {RUN_OF_NAME} {ITS_GENERATION}"
)
ONE: Final[LiteralString] = f"SELECT {RUN} FROM {ITSELF}"
STATUSES: Final[LiteralString] = f"SELECT n.namespace, n.id, r.status FROM unnest($1::text[], $2::text[]) n (namespace, id) {RUN_OF_NAME}"
RUNS: Final[LiteralString] = (
    f"SELECT {RUN} FROM romulus.runs r WHERE namespace = $1 AND key > $2 AND ($3::text IS NULL OR workflow = $3) "
    "AND ($4::text IS NULL OR status = $4) AND ($5::bigint IS NULL OR created_at >= $5) AND ($6::bigint IS NULL OR created_at < $6) "
    "AND ($7::text IS NULL OR attributes::jsonb @> $7::jsonb) ORDER BY key LIMIT $8"
)
EVENTS: Final[LiteralString] = (
    f"SELECT {EVENT}, e.arrival FROM romulus.events e WHERE e.namespace = $1 AND e.arrival > $2 "
    f"AND ($3::boolean IS NULL OR $3 <> ({FREE})) ORDER BY e.arrival LIMIT $4"
)
WAITS: Final[LiteralString] = f"SELECT {WAIT}, w.key FROM romulus.waits w WHERE w.namespace = $1 AND w.key > $2 ORDER BY w.key LIMIT $3"


async def run(session: Session, namespace: str, run_id: str) -> Run | None:
    """Return a run's row."""
    row = await session.row("read.run", ONE, namespace, run_id)
    return None if row is None else run_of(row)


async def statuses(session: Session, names: Sequence[tuple[str, str]]) -> list[RunStatus | None]:
    """Return the status of each run named by (namespace, ID)."""
    read = await session.rows("read.statuses", STATUSES, [namespace for namespace, _ in names], [run_id for _, run_id in names])
    found = {(namespace, run_id): RunStatus(status) for namespace, run_id, status in read}
    return [found.get(name) for name in names]


async def run_and_generation(session: Session, namespace: str, run_id: str) -> tuple[Run, Generation] | None:
    """Return a run's row and its current generation."""
    sql = f"SELECT {RUN}, {GENERATION} FROM {ITSELF} {ITS_GENERATION}"
    row = await session.row("read.run_and_generation", sql, namespace, run_id)
    return None if row is None else run_and_generation_of(row)


async def named(session: Session, names: Sequence[tuple[str, str]]) -> list[Record | None]:
    """Return the record without entries of each run named by (namespace, ID)."""
    rows = await session.rows("read.record", NAMED, [namespace for namespace, _ in names], [run_id for _, run_id in names])
    found = {(record.run.namespace, record.run.id): record for record in map(record_of, rows)}
    return [found.get(name) for name in names]


async def records(session: Session, keys: Sequence[int]) -> list[Record]:
    """Return the records of runs by their keys, in that order."""
    if not keys:
        return []
    sql = f"SELECT {RECORD} {FROM_RUNS} WHERE r.key = ANY($1::bigint[])"
    found = {int(row[0]): row for row in await session.rows("read.records", sql, list(keys))}
    return [record_of(found[key]) for key in keys if key in found]


async def generations(session: Session, key: int) -> list[Generation]:
    """Return every generation of a run, first to last."""
    sql = f"SELECT {GENERATION} FROM romulus.generations g JOIN romulus.runs r ON r.key = g.run WHERE g.run = $1 ORDER BY g.number"
    return [generation_of(row) for row in await session.rows("read.generations", sql, key)]


async def history(session: Session, generation: int, start: int, limit: int) -> list[Entry]:
    """Return entries from position *start*."""
    sql = f"SELECT {ENTRY} FROM romulus.journal WHERE run = $1 AND generation = $2 AND position >= $3 ORDER BY position LIMIT $4"
    run, number = generation_parts(generation)
    return [entry_of(row) for row in await session.rows("read.history", sql, run, number, start, limit)]


async def endings(session: Session, run: int) -> list[Entry]:
    """Return what a retry of *run* looks at: cancels, and the entry that ended its generation."""
    sql = (
        f"SELECT {ENTRY} FROM romulus.journal WHERE run = $1 AND generation = (SELECT generation FROM romulus.runs WHERE key = $1) "
        "AND (kind = 'cancel' OR position = (SELECT g.ended_by FROM romulus.runs r JOIN romulus.generations g ON g.run = r.key "
        "AND g.number = r.generation WHERE r.key = $1)) ORDER BY position"
    )
    return [entry_of(row) for row in await session.rows("read.endings", sql, run)]


async def runs(session: Session, where: RunFilter, after: str | None, limit: int) -> Listed[Run]:
    """Return a page of runs in creation order."""
    attributes = json.dumps(where.attributes) if where.attributes else None
    given = (where.namespace, position(after), where.workflow, where.status, where.since, where.until, attributes, limit)
    found = [run_of(row) for row in await session.rows("read.runs", RUNS, *given)]
    return page(found, limit, lambda r: r.key)


async def events(session: Session, namespace: str, matched: bool | None, after: str | None, limit: int) -> Listed[StoredEvent]:
    """Return a page of events in arrival order."""
    found = await session.rows("read.events", EVENTS, namespace, position(after), matched, limit)
    return _strip(page([(StoredEvent(*row[:-1]), row) for row in found], limit, _last))


async def waits(session: Session, namespace: str, after: str | None, limit: int) -> Listed[StoredWait]:
    """Return a page of open waits, oldest first."""
    found = await session.rows("read.waits", WAITS, namespace, position(after), limit)
    return _strip(page([(StoredWait(*row[:-1]), row) for row in found], limit, _last))


async def evidence(session: Session, run_key: int) -> list[Evidence]:
    """Return a run's evidence, oldest first."""
    sql = "SELECT at, kind, owner, fence, detail FROM romulus.evidence WHERE run = $1 ORDER BY key"
    return [Evidence(*row) for row in await session.rows("evidence.read", sql, run_key)]


def _last(pair: tuple[object, Row]) -> int:
    return int(pair[1][-1])


def _strip(page: Listed[tuple[T, Row]]) -> Listed[T]:
    return Listed([item for item, _ in page.items], page.next)
