"""Reports on operations: what each makes of its operation is decided in turn, and what came of all of them is written at once.

A group has as many round trips as one report has. Runs are locked before operations, as their own transitions lock them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.operations import SETTLED, Decided, OperationRow, OperationState, Report
from romulus.core.record import About, HoldKind

from .operations import ADD_NOTES, FROM, OPERATION, operation_of
from .rows import Row, columns, generation_parts
from .session import Session

Decide: TypeAlias = Callable[[OperationRow, Report, int], Decided]
Ask: TypeAlias = tuple[Report, Decide, RunStatus]

NOTES_MAX: Final = 1_000  # notes of one operation that change nothing are kept up to this many
LOCK_RUNS: Final[LiteralString] = (
    "SELECT r.key FROM romulus.runs r WHERE r.key IN (SELECT o.run FROM romulus.operations o WHERE o.id = ANY($1::text[])) ORDER BY r.key "
    "FOR UPDATE OF r"
)
LOCK: Final[LiteralString] = "SELECT key FROM romulus.operations WHERE id = ANY($1::text[]) ORDER BY key FOR UPDATE"
FOUND: Final[LiteralString] = f"SELECT c.now, {OPERATION} {FROM}, (SELECT romulus.clock() AS now OFFSET 0) c WHERE o.id = ANY($1::text[])"
COUNT: Final[LiteralString] = (
    "SELECT operation, count(*) FROM romulus.operation_notes WHERE operation = ANY($1::bigint[]) GROUP BY operation"
)
BECOME: Final[LiteralString] = (
    "UPDATE romulus.operations o SET state = x.state, sends = x.sends, owner = x.owner, fence = x.fence, first_sent_at = x.first_sent_at, "
    "may_leave_until = x.may_leave_until, due = x.due, looks = x.looks, cleared = x.cleared, seen_applied = x.seen_applied, "
    "hold_reason = x.hold_reason, failed = x.failed, body = x.body, updated_at = x.updated_at, ended_at = x.ended_at "
    "FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], "
    "$9::integer[], $10::boolean[], $11::boolean[], $12::text[], $13::boolean[], $14::bytea[], $15::bigint[], $16::bigint[]) "
    "x (key, state, sends, owner, fence, first_sent_at, may_leave_until, due, looks, cleared, seen_applied, hold_reason, failed, body, "
    "updated_at, ended_at) WHERE o.key = x.key"
)
# The run that awaits an operation is told, woken, and no longer held where it was held for a review.
TELL: Final[LiteralString] = (
    "WITH told AS (INSERT INTO romulus.inbox (run, about, seq, failed, body, info) "
    "SELECT r.key, x.about, x.seq, x.failed, x.body, x.info FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::integer[], "
    "$5::boolean[], $6::bytea[], $7::text[]) WITH ORDINALITY x (run, generation, about, seq, failed, body, info, n) "
    "JOIN romulus.runs r ON r.key = x.run AND r.generation = x.generation AND r.finished_at IS NULL ORDER BY x.n RETURNING run), "
    "woken AS (INSERT INTO romulus.wakes (run) SELECT DISTINCT run FROM told ORDER BY run) "
    "UPDATE romulus.runs SET status = $8, hold_kind = '', hold_reason = '', wake_at = $9, lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = $9 - priority::bigint * 10000000, queued_by = romulus.xid(), updated_at = $9 "
    "WHERE key IN (SELECT run FROM told) AND hold_kind = $10"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one report makes of its operation."""

    report: Report
    to: RunStatus  # of a run that is held for review of it
    before: OperationRow
    decided: Decided


async def report(session: Session, asked: Sequence[Ask]) -> list[Decided | None]:
    """Let each report's *decide* say what its operation becomes, and write that; see `Store.report`."""
    ids = sorted({given.id for given, _, _ in asked})
    await session.rows("report.runs", LOCK_RUNS, ids)
    await session.rows("report.lock", LOCK, ids)
    found = await session.rows("report.find", FOUND, ids)
    if not found:
        return [None] * len(asked)
    now: int = found[0][0]
    decisions = _decisions(asked, [operation_of(row[1:]) for row in found], now)
    made = [each for each in decisions if each is not None]
    await become(session, {each.decided.row.key: each.decided.row for each in made if each.decided.changed}.values())  # the last of each
    await _note(session, made, now)
    await _tell(session, made, now)
    return [None if each is None else each.decided for each in decisions]


def _decisions(asked: Sequence[Ask], found: Sequence[OperationRow], now: int) -> list[Decision | None]:
    """Decide in turn: a report meets its operation as the one before has left it."""
    rows = {row.id: row for row in found}
    decisions: list[Decision | None] = []
    for given, decide, to in asked:
        before = rows.get(given.id)
        if before is None or before.namespace != given.namespace:
            decisions.append(None)
            continue
        decided = decide(before, given, now)
        rows[given.id] = decided.row
        decisions.append(Decision(given, to, before, decided))
    return decisions


async def become(session: Session, rows: Collection[OperationRow]) -> None:
    """Write what operations have become; the caller has locked them."""
    if rows:
        await session.rows("operations.become", BECOME, *columns([_row(row) for row in rows]))


def _row(row: OperationRow) -> Row:
    return (
        row.key, row.state.value, row.sends, row.owner, row.fence, row.first_sent_at, row.may_leave_until, row.due, row.looks, row.cleared,
        row.seen_applied, row.hold_reason, row.failed, row.body, row.updated_at, row.ended_at,
    )  # fmt: skip


async def _note(session: Session, made: Sequence[Decision], now: int) -> None:
    """Add to the histories what changed something, and what did not while there is room."""
    silent = sorted({each.before.key for each in made if not each.decided.changed})
    kept: Counter[int] = Counter()
    if silent:
        for key, count in await session.rows("report.notes", COUNT, silent):
            kept[key] = count
    notes: list[Row] = []
    for each in made:
        key, given, decided = each.before.key, each.report, each.decided
        if decided.changed or kept[key] < NOTES_MAX:
            kept[key] += 1
            notes.append((key, now, str(decided.kind), given.who, str(decided.row.state), given.detail, given.note or given.body))
    if notes:
        await session.rows("report.note", ADD_NOTES, *columns(notes))


async def _tell(session: Session, made: Sequence[Decision], now: int) -> None:
    """Tell the runs that await the operations: their outcome, or that they wait for a person, or no longer do."""
    told: dict[RunStatus, list[Row]] = {}
    for each in made:
        said = _said(each) if each.decided.changed and each.decided.row.awaited else None
        if said is not None:
            told.setdefault(each.to, []).append(said)
    for to, rows in told.items():
        await session.rows("report.tell", TELL, *columns(rows), to.value, now, HoldKind.REVIEW.value)


def _said(each: Decision) -> Row | None:
    row = each.decided.row
    of: tuple[Any, ...] = generation_parts(row.generation)
    if row.state in SETTLED:
        info = json.dumps([row.id, row.state, row.sends, row.hold_reason], ensure_ascii=False)
        return (*of, About.OPERATION.value, row.seq, row.failed, row.body, info)
    if OperationState.HELD in (each.before.state, row.state):
        return (*of, About.REVIEW.value, row.seq, False, b"", row.hold_reason)
    return None
