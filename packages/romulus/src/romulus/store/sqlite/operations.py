"""Operations: recorded and marked by their run's transition, claimed and settled by any worker, each report one guarded change."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.operations import SETTLED, Decided, NewIntent, OperationNote, OperationRow, OperationState, Protocol, Report
from romulus.core.pools import DEFAULT_POOL
from romulus.core.record import About, HoldKind
from romulus.core.transition import Transition
from romulus.store.contract import Listed, OperationsServed, TakenOperations
from romulus.store.paging import page, position

from .bulk import Bulk
from .rows import gathered, read_all
from .session import Session

Decide: TypeAlias = Callable[[OperationRow, Report, int], Decided]
Ask: TypeAlias = tuple[Report, Decide, RunStatus]
Fitting: TypeAlias = tuple[str, str, str, str, str]  # namespace, pool, names, those with a lookup, keys left to others (JSON)

# In the order of `operation_of`.
OPERATION: Final[LiteralString] = (
    "o.key, o.id, o.namespace, o.run, r.id, r.workflow, r.version, o.generation, o.seq, o.name, o.digest, hex(o.arguments), o.pool, "
    "o.idempotent, o.key_lifetime, o.settle, o.timeout, o.has_lookup, o.state, o.sends, o.owner, o.fence, o.by_run, o.first_sent_at, "
    "o.may_leave_until, o.due, o.looks, o.cleared, o.seen_applied, o.awaited, o.hold_reason, o.failed, hex(o.body), o.created_at, "
    "o.updated_at, o.ended_at, EXISTS (SELECT 1 FROM doubted WHERE operation = o.key), o.position"
)
NOTE: Final[LiteralString] = "at, kind, who, state, detail, hex(body)"
INTENTS: Final = Bulk(
    "apply.intents",
    "INSERT INTO operations (id, namespace, run, generation, seq, name, digest, arguments, idempotent, key_lifetime, settle, timeout, "
    "has_lookup, state, sends, owner, fence, by_run, first_sent_at, may_leave_until, due, looks, cleared, seen_applied, awaited, "
    "hold_reason, failed, body, created_at, updated_at, ended_at, pool, position) "
    "SELECT t.column4, r.namespace, t.column1, t.column2, t.column3, t.column5, t.column6, t.column7, t.column8, t.column9, t.column10, "
    "t.column11, t.column12, t.column13, t.column14, t.column15, t.column16, t.column23, t.column17, t.column18, t.column21, "
    "0, 0, 0, 1, '', 0, X'', t.column19, t.column19, NULL, t.column20, t.column22 FROM (",
    23,
    ") AS t CROSS JOIN runs r ON r.key = t.column1 WHERE true ON CONFLICT (generation, seq) DO UPDATE SET state = excluded.state, "
    "sends = excluded.sends, owner = excluded.owner, fence = excluded.fence, by_run = 1, first_sent_at = excluded.first_sent_at, "
    "may_leave_until = excluded.may_leave_until, updated_at = excluded.updated_at WHERE operations.state = 'queued'",
)
DOUBTED: Final = Bulk(
    "apply.doubted",
    "INSERT OR IGNORE INTO doubted (operation) SELECT o.key FROM (",
    2,
    ") AS t CROSS JOIN operations o INDEXED BY operations_generation ON o.generation = t.column1 AND o.seq = t.column2",
)
# Columns of the VALUES list: 1 generation, 2 seq, 3 state before, 4 fence, then what is written. Un-arming takes the send back.
MARKS: Final = Bulk(
    "apply.marks",
    "UPDATE operations INDEXED BY operations_generation SET state = t.column5, due = t.column6, "
    "seen_applied = max(seen_applied, t.column7), awaited = t.column8, ended_at = t.column9, updated_at = t.column10, owner = NULL, "
    "sends = sends - (t.column3 = 'armed' AND t.column5 IN ('queued', 'withdrawn')), "
    "first_sent_at = CASE WHEN t.column5 IN ('queued', 'withdrawn') THEN NULL ELSE first_sent_at END FROM (",
    10,
    ") AS t WHERE operations.generation = +t.column1 AND operations.seq = +t.column2 AND operations.state = +t.column3 "
    "AND (t.column3 <> 'armed' OR operations.fence = +t.column4)",
)
LOSSES: Final = Bulk(
    "apply.losses",
    "INSERT INTO operation_notes (operation, at, kind, who, state, detail, body) "
    "SELECT o.key, t.column3, 'no answer', t.column4, t.column5, '{}', t.column6 FROM (",
    6,
    ") AS t CROSS JOIN operations o INDEXED BY operations_generation ON o.generation = t.column1 AND o.seq = t.column2",
)
FORSAKE: Final = (
    "UPDATE operations SET awaited = 0 WHERE key IN (SELECT o.key FROM json_each(?) t CROSS JOIN operations o "
    "ON o.generation = t.value ->> 0 AND o.seq = t.value ->> 1)"
)
LEAVE: Final = (
    "UPDATE operations SET awaited = 0, state = CASE state WHEN 'queued' THEN 'withdrawn' ELSE state END, "
    "owner = CASE state WHEN 'queued' THEN NULL ELSE owner END, due = CASE state WHEN 'queued' THEN NULL ELSE due END, "
    "ended_at = CASE state WHEN 'queued' THEN ?2 ELSE ended_at END, updated_at = ?2 "
    "WHERE generation IN (SELECT value FROM json_each(?1)) AND awaited"
)
REVIEWED: Final = "SELECT 1 FROM inbox WHERE run IN (SELECT value FROM json_each(?)) LIMIT 1"
LOST: Final = (
    "SELECT o.key FROM operations o INDEXED BY operations_owner WHERE o.owner IS NOT NULL AND CASE WHEN o.by_run "
    "THEN NOT EXISTS (SELECT 1 FROM runs r WHERE r.key = o.run AND r.owner = o.owner AND r.fence = o.fence) "
    "ELSE o.owner NOT IN (SELECT id FROM workers WHERE NOT dead) END"
)
NOTE_LOST: Final = (
    "INSERT INTO operation_notes (operation, at, kind, who, state, detail, body) SELECT key, ?2, 'lost', owner, ?3, '{}', X'' "
    "FROM operations WHERE key IN (SELECT value FROM json_each(?1)) AND state = 'armed'"
)
GIVE_UP: Final = (
    "UPDATE operations SET state = CASE state WHEN 'armed' THEN ?3 ELSE state END, owner = NULL, due = ?2, updated_at = ?2 "
    "WHERE key IN (SELECT value FROM json_each(?1))"
)
# Bindings: 1 namespace, 2 pool, 3 names and 4 those with a lookup, 5 keys that are left to others (JSON).
# Each pool is asked for on its own: the index orders its rows.
FITTING: Final[LiteralString] = (
    "namespace = ?1 AND pool = ?2 AND due IS NOT NULL AND name IN (SELECT value FROM json_each(?3)) "
    "AND (NOT has_lookup OR name IN (SELECT value FROM json_each(?4))) AND key NOT IN (SELECT value FROM json_each(?5))"
)
DUE: Final[LiteralString] = f"operations INDEXED BY operations_due WHERE {FITTING} AND state <> 'queued'"
QUEUED: Final[LiteralString] = f"operations INDEXED BY operations_queued WHERE {FITTING} AND state = 'queued'"
CLAIM: Final[LiteralString] = (
    "UPDATE operations SET owner = ?6, fence = max(fence + 1, ?7), by_run = 0, due = NULL, updated_at = ?7 WHERE key IN (SELECT key FROM "
)
FIRST: Final[LiteralString] = " AND due <= ?7 ORDER BY due LIMIT ?8) RETURNING key"
NEXT: Final[LiteralString] = f"SELECT due FROM {DUE} ORDER BY due LIMIT 1"
TAKE: Final[LiteralString] = f"{CLAIM}{DUE}{FIRST}"
NEXT_QUEUED: Final[LiteralString] = f"SELECT due FROM {QUEUED} ORDER BY due LIMIT 1"
TAKE_QUEUED: Final[LiteralString] = f"{CLAIM}{QUEUED}{FIRST}"
FROM: Final[LiteralString] = "operations o CROSS JOIN runs r ON r.key = o.run"
TAKEN: Final = gathered(OPERATION, f"FROM json_each(?) t CROSS JOIN {FROM} WHERE o.key = t.value")
ONE: Final[LiteralString] = f"SELECT json_array({OPERATION}) FROM {FROM} WHERE o.id = ? AND o.namespace = ?"
OF_GENERATION: Final = gathered(
    OPERATION, "FROM (SELECT * FROM operations WHERE generation = ? AND awaited ORDER BY seq) o CROSS JOIN runs r ON r.key = o.run"
)
OPEN: Final = gathered(
    OPERATION,
    "FROM (SELECT * FROM operations WHERE generation = ? AND state IN ('armed', 'unknown', 'resend', 'held') ORDER BY seq) o "
    "CROSS JOIN runs r ON r.key = o.run",
)
LISTED: Final = gathered(
    OPERATION,
    "FROM (SELECT * FROM operations WHERE namespace = ?1 AND key > ?2 AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR run = ?4) "
    "ORDER BY key LIMIT ?5) o CROSS JOIN runs r ON r.key = o.run",
)
# Bindings: 1 namespace, 2 due until, 3 what is served (JSON), 4 limit. Of all pools: few are overdue, or nobody would settle any.
UNSERVED: Final = gathered(
    OPERATION,
    "FROM (SELECT * FROM operations INDEXED BY operations_due WHERE namespace = ?1 AND due IS NOT NULL AND state <> 'queued' "
    "AND state <> 'held' AND due <= ?2 AND NOT EXISTS (SELECT 1 FROM json_each(?3) s WHERE s.value ->> 0 = pool AND s.value ->> 1 = name "
    "AND (NOT has_lookup OR s.value ->> 2)) ORDER BY due, key LIMIT ?4) o CROSS JOIN runs r ON r.key = o.run",
)
BECOMES: Final = (
    "UPDATE operations SET state = ?2, sends = ?3, owner = ?4, fence = ?5, first_sent_at = ?6, may_leave_until = ?7, due = ?8, looks = ?9, "
    "cleared = ?10, seen_applied = ?11, hold_reason = ?12, failed = ?13, body = ?14, updated_at = ?15, ended_at = ?16 WHERE key = ?1"
)
ADD_NOTE: Final = "INSERT INTO operation_notes (operation, at, kind, who, state, detail, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
NOTES_MAX: Final = 1_000  # notes of one operation that change nothing are kept up to this many
TELL: Final = (
    "INSERT INTO inbox (run, about, seq, failed, body, info) SELECT key, ?3, ?4, ?5, ?6, ?7 FROM runs "
    "WHERE key = ?1 AND generation_key = ?2 AND finished_at IS NULL"
)
REOPEN: Final = (
    "UPDATE runs SET status = ?2, hold_kind = '', hold_reason = '', wake_at = ?3, lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = ?3 - priority * 10000000, updated_at = ?3 WHERE key = ?1 AND hold_kind = ?4"
)


# ---- written by the run's own transition -----------------------------------------------------------


def write_operations(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    """Record intents and marks; False: one does not hold, or a run to be held for review has mail (the caller rolls back)."""
    marked = [t for t in transitions if t.marks or t.intents or t.forsaken]
    reviewed = [t.run for t in transitions if t.hold is not None and t.hold[0] is HoldKind.REVIEW]
    if reviewed and session.run("apply.reviewed", REVIEWED, (json.dumps(reviewed),)):
        return False
    return not marked or (_mark(session, marked, now) and _intend(session, marked, now))


def leave_operations(session: Session, generations: Sequence[int], now: int) -> None:
    """Withdraw the queued operations of generations that end; nobody awaits the others any more."""
    if generations:
        session.run("operations.leave", LEAVE, (json.dumps(generations), now))


def _intend(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    rows = [
        (
            t.run, t.generation, i.seq, i.id, i.name, i.digest, i.arguments, i.protocol.idempotent, i.protocol.key_lifetime,
            i.protocol.settle, i.protocol.timeout, i.protocol.has_lookup, i.state, *_claim(t, i, now), i.may_leave_until, now, i.pool,
            now if _is_pooled(i) or i.since is not None else None, i.position, not _is_pooled(i),
        )
        for t in transitions for i in t.intents
    ]  # fmt: skip
    written = INTENTS.write(session, rows)
    DOUBTED.write(session, [(t.generation, i.seq) for t in transitions for i in t.intents if i.since is not None])
    return written == len(rows)


def _is_pooled(i: NewIntent) -> bool:
    """Return whether workers of a pool are to send it."""
    return i.pool != DEFAULT_POOL and i.state is OperationState.QUEUED


def _claim(t: Transition, i: NewIntent, now: int) -> tuple[int, str | None, int, int | None]:
    armed = i.state is OperationState.ARMED
    return (1, t.owner, t.fence, now) if armed else (int(i.since is not None), None, t.fence, i.since)


def _mark(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    rows = [
        (
            t.generation, m.seq, m.before, t.fence, m.state, m.due, m.seen_applied, m.awaited,
            now if m.state in SETTLED else None, now,
        )
        for t in transitions for m in t.marks
    ]  # fmt: skip
    if MARKS.write(session, rows) != len(rows):
        return False
    lost = [(t.generation, m.seq, now, t.owner, m.state, m.error) for t in transitions for m in t.marks if m.error]
    LOSSES.write(session, lost)
    forsaken = [(t.generation, seq) for t in transitions for seq in t.forsaken]
    if forsaken:
        session.run("apply.forsaken", FORSAKE, (json.dumps(forsaken),))
    return True


# ---- settling ---------------------------------------------------------------------------------------


def take(
    session: Session, owner: str, namespace: str, serves: OperationsServed, limit: int, lost: OperationState | None
) -> TakenOperations:  # fmt: skip
    """Claim due operations; see `Store.take_operations`. No lock is taken while nothing is due and no claim is over."""
    fitting = _fitting(namespace, serves)
    over, due = session.read(lambda s: (lost is not None and s.run("operations.lost", LOST), _next(s, NEXT, fitting)))
    if not over and not _is_due(session, due):
        return TakenOperations((), due[0][0] if due else None)
    return session.write(lambda s, now: _take(s, owner, fitting, limit, lost, now))


def take_queued(session: Session, owner: str, namespace: str, serves: OperationsServed, limit: int) -> TakenOperations:
    """Claim operations that are queued in pools; see `Store.take_queued`. No lock is taken while nothing is due."""
    fitting = _fitting(namespace, serves)
    due = session.read(lambda s: _next(s, NEXT_QUEUED, fitting))
    if not _is_due(session, due):
        return TakenOperations((), due[0][0] if due else None)
    return session.write(lambda s, now: _claimed(s, owner, fitting, limit, now, NEXT_QUEUED, TAKE_QUEUED))


def unserved(session: Session, namespace: str, served: Sequence[tuple[str, str, bool]], overdue: int, limit: int) -> list[OperationRow]:
    """Return what nobody can settle; see `Store.unserved_operations`."""
    given = (namespace, session.clock.now() - overdue, json.dumps(list(served)), limit)
    return session.read(lambda s: read_all(s, "operations.unserved", UNSERVED, given, operation_of))


def report(session: Session, asked: Sequence[Ask], now: int) -> list[Decided | None]:
    """Let each report's *decide* say what its operation becomes, and write that; see `Store.report`."""
    return [_report(session, report, decide, to, now) for report, decide, to in asked]


def _fitting(namespace: str, serves: OperationsServed) -> list[Fitting]:
    names, lookups, aside = json.dumps(list(serves.names)), json.dumps(list(serves.lookups)), json.dumps(list(serves.aside))
    return [(namespace, pool, names, lookups, aside) for pool in serves.pools]


def _next(session: Session, sql: LiteralString, fitting: Sequence[Fitting]) -> list[tuple[int, Fitting]]:
    """Return when the next operation of each pool is due, the pool with the earliest first; those without any are left out."""
    found = [(session.value("operations.next", sql, pool), pool) for pool in fitting]
    return sorted((due, pool) for due, pool in found if due is not None)


def _is_due(session: Session, due: Sequence[tuple[int, Fitting]]) -> bool:
    return bool(due) and due[0][0] <= session.clock.now()


def _take(session: Session, owner: str, fitting: Sequence[Fitting], limit: int, lost: OperationState | None, now: int) -> TakenOperations:
    over = [key for (key,) in session.run("operations.over", LOST)] if lost is not None else []
    if over:
        session.run("operations.note_lost", NOTE_LOST, (json.dumps(over), now, lost))
        session.run("operations.give_up", GIVE_UP, (json.dumps(over), now, lost))
    return _claimed(session, owner, fitting, limit, now, NEXT, TAKE)


def _claimed(
    session: Session, owner: str, fitting: Sequence[Fitting], limit: int, now: int, following: LiteralString, take: LiteralString
) -> TakenOperations:
    live = session.run("operations.live", "SELECT 1 FROM workers WHERE id = ? AND NOT dead", (owner,))
    keys: list[int] = []
    for _, pool in _next(session, following, fitting) if live else ():
        keys += [key for (key,) in session.run("operations.take", take, (*pool, owner, now, limit - len(keys)))]
    rows = read_all(session, "operations.taken", TAKEN, (json.dumps(keys),), operation_of)
    left = _next(session, following, fitting)
    return TakenOperations(rows, left[0][0] if left else None)


def _report(session: Session, given: Report, decide: Decide, to: RunStatus, now: int) -> Decided | None:
    before = find(session, given.namespace, given.id)
    if before is None:
        return None
    decided = decide(before, given, now)
    row = decided.row
    if decided.changed:
        become(session, row)
    elif _notes(session, row.key) >= NOTES_MAX:
        return decided
    session.run("operations.note", ADD_NOTE, (row.key, now, decided.kind, given.who, row.state, given.detail, given.note or given.body))
    if decided.changed and row.awaited:
        _tell(session, before, row, to, now)
    return decided


def become(session: Session, row: OperationRow) -> None:
    """Write what an operation has become."""
    session.run(
        "operations.become",
        BECOMES,
        (
            row.key, row.state, row.sends, row.owner, row.fence, row.first_sent_at, row.may_leave_until, row.due, row.looks,
            row.cleared, row.seen_applied, row.hold_reason, row.failed, row.body, row.updated_at, row.ended_at,
        ),
    )  # fmt: skip


def _notes(session: Session, key: int) -> int:
    count: int = session.value("operations.notes", "SELECT count(*) FROM operation_notes WHERE operation = ?", (key,))
    return count


def _tell(session: Session, before: OperationRow, row: OperationRow, to: RunStatus, now: int) -> None:
    """Tell the run that awaits the operation: its outcome, or that it waits for a person, or no longer does."""
    if row.state in SETTLED:
        info = json.dumps([row.id, row.state, row.sends, row.hold_reason], ensure_ascii=False)
        given: tuple[Any, ...] = (row.run, row.generation, About.OPERATION, row.seq, row.failed, row.body, info)
    elif OperationState.HELD in (before.state, row.state):
        given = (row.run, row.generation, About.REVIEW, row.seq, False, b"", row.hold_reason)
    else:
        return
    if session.count("operations.tell", TELL, given):
        session.run("operations.wake", "INSERT INTO wakes (run) VALUES (?)", (row.run,))
        session.run("operations.reopen", REOPEN, (row.run, to, now, HoldKind.REVIEW))


# ---- reads ------------------------------------------------------------------------------------------


def find(session: Session, namespace: str, operation_id: str) -> OperationRow | None:
    """Return the operation of that ID."""
    found = session.value("operations.find", ONE, (operation_id, namespace))
    return None if found is None else operation_of(json.loads(found))


def of_generation(session: Session, generation: int) -> list[OperationRow]:
    """Return the operations that *generation* awaits, in command order."""
    return read_all(session, "operations.awaited", OF_GENERATION, (generation,), operation_of)


def open_of(session: Session, generation: int) -> list[OperationRow]:
    """Return the operations of *generation* that may have been sent and are not settled, in command order."""
    return read_all(session, "operations.open", OPEN, (generation,), operation_of)


def listed(
    session: Session, namespace: str, state: OperationState | None, run: int | None, after: str | None, limit: int
) -> Listed[OperationRow]:  # fmt: skip
    """Return a page of operations in the order they were recorded."""
    found = read_all(session, "operations.list", LISTED, (namespace, position(after), state, run, limit), operation_of)
    return page(found, limit, lambda row: row.key)


def notes(session: Session, key: int) -> list[OperationNote]:
    """Return an operation's history."""
    sql = gathered(NOTE, "FROM (SELECT * FROM operation_notes WHERE operation = ? ORDER BY key)")
    return read_all(session, "operations.history", sql, (key,), note_of)


def note_of(row: Sequence[Any]) -> OperationNote:
    """Return the line of history of a row of `NOTE`."""
    at, kind, who, state, detail, body = row
    return OperationNote(at, kind, who, state, detail, bytes.fromhex(body))


def operation_of(row: Sequence[Any]) -> OperationRow:
    """Return the operation of a row of `OPERATION`."""
    (
        key, operation_id, namespace, run, run_id, workflow, version, generation, seq, name, digest, arguments, pool, idempotent, lifetime,
        settle, timeout, has_lookup, state, sends, owner, fence, by_run, first, leave, due, looks, cleared, seen, awaited, reason, failed,
        body, created, updated, ended, doubted, position,
    ) = row  # fmt: skip
    return OperationRow(
        key, operation_id, namespace, run, run_id, workflow, version, generation, seq, name, digest, bytes.fromhex(arguments), pool,
        Protocol(idempotent == 1, lifetime, settle, timeout, has_lookup == 1), OperationState(state), sends, owner, fence, by_run == 1,
        first, leave, due, looks, cleared == 1, seen == 1, awaited == 1, reason, failed == 1, bytes.fromhex(body), created, updated, ended,
        doubted == 1, position,
    )  # fmt: skip
