"""Reads: a run, its record, its history, and listings that page in the order of creation."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, LiteralString, TypeVar

from romulus.core.machine import RunStatus
from romulus.core.record import Entry, Generation, Record, Run
from romulus.store.contract import Listed, RunFilter, StoredEvent, StoredWait
from romulus.store.paging import page, position

from .rows import ENTRY, FROM_RUNS, GENERATION, RECORD, RUN, blob, entry_of, gathered, generation_of, read_all, record_of, run_of
from .session import Session

T = TypeVar("T")

EVENT: Final[LiteralString] = (
    "e.arrival, e.id, e.name, e.correlation_id, hex(e.payload), e.received_at, e.state, "
    "EXISTS (SELECT 1 FROM late l WHERE l.event = e.arrival), (SELECT r.id FROM runs r WHERE r.key = e.run)"
)
WAIT: Final[LiteralString] = (
    "w.key, (SELECT r.id FROM runs r WHERE r.key = w.run), w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.opened_at, "
    "(SELECT e.id FROM events e WHERE e.arrival = w.event)"
)


def run(session: Session, namespace: str, run_id: str) -> Run | None:
    """Return a run's row."""
    rows = session.run("read.run", f"SELECT {RUN} FROM runs r WHERE r.namespace = ? AND r.id = ?", (namespace, run_id))
    return run_of(rows[0]) if rows else None


def statuses(session: Session, namespace: str, run_ids: Sequence[str]) -> dict[str, RunStatus]:
    """Return the status of each of these runs that is there."""
    if len(run_ids) == 1:
        found = session.run("read.status", "SELECT r.id, r.status FROM runs r WHERE r.namespace = ? AND r.id = ?", (namespace, *run_ids))
    else:
        sql = "SELECT r.id, r.status FROM json_each(?2) n CROSS JOIN runs r ON r.namespace = ?1 AND r.id = n.value"
        found = session.run("read.statuses", sql, (namespace, json.dumps(run_ids)))
    return {run_id: RunStatus(status) for run_id, status in found}


def record(session: Session, namespace: str, run_id: str) -> Record | None:
    """Return a run's record without entries."""
    sql = gathered(RECORD, f"{FROM_RUNS} WHERE r.namespace = ? AND r.id = ?")
    found = read_all(session, "read.record", sql, (namespace, run_id), record_of)
    return found[0] if found else None


def records(session: Session, keys: Sequence[int]) -> list[Record]:
    """Return the records of runs by their keys, in that order."""
    if not keys:
        return []
    sql = gathered(RECORD, "FROM json_each(?) k CROSS JOIN runs r ON r.key = k.value JOIN generations g ON g.key = r.generation_key")
    return read_all(session, "read.records", sql, (json.dumps(keys),), record_of)


def generations(session: Session, key: int) -> list[Generation]:
    """Return every generation of a run, first to last."""
    sql = gathered(GENERATION, "FROM (SELECT * FROM generations WHERE run = ? ORDER BY number) g JOIN runs r ON r.key = g.run")
    return read_all(session, "read.generations", sql, (key,), generation_of)


def history(session: Session, generation: int, start: int, limit: int) -> list[Entry]:
    """Return entries from position *start*."""
    sql = gathered(ENTRY, "FROM (SELECT * FROM journal WHERE generation = ? AND position >= ? ORDER BY position LIMIT ?)")
    return read_all(session, "read.history", sql, (generation, start, limit), entry_of)


def endings(session: Session, generation: Generation) -> list[Entry]:
    """Return what a retry looks at: cancels, and the entry that ended the generation."""
    sql = gathered(ENTRY, "FROM (SELECT * FROM journal WHERE generation = ? AND (kind = 'cancel' OR position = ?) ORDER BY position)")
    return read_all(session, "read.endings", sql, (generation.key, generation.ended_by), entry_of)


def runs(session: Session, where: RunFilter, after: str | None, limit: int) -> Listed[Run]:
    """Return a page of runs in creation order."""
    attributes = [[name, _json_type(value), value] for name, value in where.attributes.items()]
    sql = gathered(
        RUN,
        "FROM (SELECT * FROM runs AS o WHERE namespace = ?1 AND key > ?2 AND (?3 IS NULL OR workflow = ?3) AND (?4 IS NULL OR status = ?4) "
        "AND (?5 IS NULL OR created_at >= ?5) AND (?6 IS NULL OR created_at < ?6) "
        "AND NOT EXISTS (SELECT 1 FROM json_each(?7) f WHERE NOT EXISTS (SELECT 1 FROM json_each(o.attributes) a "
        "WHERE a.key = f.value ->> 0 AND a.type = f.value ->> 1 AND a.atom = f.value ->> 2)) ORDER BY key LIMIT ?8) r",
    )
    given = (where.namespace, position(after), where.workflow, where.status, where.since, where.until, json.dumps(attributes), limit)
    found = read_all(session, "read.runs", sql, given, run_of)
    return page(found, limit, lambda r: r.key)


def events(session: Session, namespace: str, matched: bool | None, after: str | None, limit: int) -> Listed[StoredEvent]:
    """Return a page of events in arrival order."""
    sql = gathered(
        EVENT,
        "FROM (SELECT * FROM events WHERE namespace = ?1 AND arrival > ?2 AND (?3 IS NULL OR (state <> 'unmatched') = ?3) "
        "ORDER BY arrival LIMIT ?4) e",
    )
    found = read_all(session, "read.events", sql, (namespace, position(after), matched, limit), _event_of)
    return _strip(page(found, limit, lambda pair: pair[0]))


def waits(session: Session, namespace: str, after: str | None, limit: int) -> Listed[StoredWait]:
    """Return a page of open waits, oldest first."""
    sql = gathered(WAIT, "FROM (SELECT * FROM waits WHERE namespace = ? AND key > ? ORDER BY key LIMIT ?) w")
    found = read_all(session, "read.waits", sql, (namespace, position(after), limit), _wait_of)
    return _strip(page(found, limit, lambda pair: pair[0]))


def _event_of(row: Sequence[Any]) -> tuple[int, StoredEvent]:
    arrival, event_id, name, correlation_id, payload, received_at, state, late, run_id = row
    return arrival, StoredEvent(event_id, name, correlation_id, blob(payload) or b"", received_at, state, late == 1, run_id)


def _wait_of(row: Sequence[Any]) -> tuple[int, StoredWait]:
    key, run_id, seq, name, correlation_id, deadline, shared, opened_at, event_id = row
    return key, StoredWait(run_id, seq, name, correlation_id, deadline, shared == 1, opened_at, event_id)


def _strip(page: Listed[tuple[int, T]]) -> Listed[T]:
    return Listed([item for _, item in page.items], page.next)


def _json_type(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "integer" if isinstance(value, int) else "text"
