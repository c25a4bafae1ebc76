"""Operations in the statement of their run's transition: checked under their locks, then recorded, marked and left with it.

Other than waits, an operation is changed by others while its run goes on: by reports, settlers and workers of its pool. So a batch that
speaks of operations first locks its run rows (`held`) in the order of their keys, then these operations (`mine`), as reports do. What
`mine` answers is the newest version of each: locking a row that was written to meanwhile reads it again, and checks it again.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, LiteralString

from romulus.core.operations import SETTLED, NewIntent, OperationMark, OperationState
from romulus.core.pools import DEFAULT_POOL
from romulus.core.record import HoldKind
from romulus.core.transition import Transition

from .ending import ends
from .operations import INTO_NOTES
from .rows import Row, generation_parts
from .session import Session
from .statement import Statement

UNSENT: Final = (OperationState.QUEUED, OperationState.WITHDRAWN)
INTENTS: Final[LiteralString] = (
    "id bigint, run bigint, generation integer, seq integer, fence bigint, marked boolean, operation text, name text, digest text, "
    "arguments bytea, idempotent boolean, key_lifetime bigint, settle bigint, timeout bigint, has_lookup boolean, state text, owner text, "
    "may_leave_until bigint, pool text, pooled boolean, is_due boolean, awaited boolean, position integer, since bigint"
)
MARKS: Final[LiteralString] = (
    "id bigint, run bigint, generation integer, seq integer, fence bigint, before text, intended boolean, state text, due bigint, "
    "seen_applied boolean, awaited boolean, settled boolean, unsent boolean"
)
FORSAKEN: Final[LiteralString] = "id bigint, run bigint, generation integer, seq integer"
LOSSES: Final[LiteralString] = "id bigint, seq integer, who text, state text, error bytea"

# What a batch speaks of. An operation that a transition both marks and records is one: what has to hold is the mark.
MARKED_ONES: Final[LiteralString] = "SELECT id, run, generation, seq, fence, before, 'mark' AS how FROM marks"
INTENDED_ONES: Final[LiteralString] = "SELECT id, run, generation, seq, fence, '', 'intent' FROM intents WHERE NOT marked"
FORSAKEN_ONES: Final[LiteralString] = "SELECT id, run, generation, seq, 0::bigint, '', 'forsake' FROM forsaken"
# An operation is looked at once its run is locked, and reached by its keys, whatever statistics say: a lock keeps its subquery as it is.
# Who waits for an operation waits for a settler that claims it, which waits for nobody.
MINE: Final[LiteralString] = (
    "mine AS MATERIALIZED (SELECT n.id, n.seq, o.key, o.state, o.fence FROM held h JOIN named n ON (n.run + 0) = h.key "
    "CROSS JOIN LATERAL (SELECT key, state, fence FROM romulus.operations WHERE run = h.key AND generation = n.generation "
    "AND seq = n.seq FOR UPDATE) o)"
)
UNHELD: Final[LiteralString] = (
    "SELECT n.id FROM named n LEFT JOIN mine m ON m.id = n.id AND m.seq = n.seq WHERE CASE n.how WHEN 'intent' THEN m.state <> 'queued' "
    "WHEN 'mark' THEN (m.state = n.before AND (n.before <> 'armed' OR m.fence = n.fence)) IS NOT TRUE END"
)
# What was queued is armed, put in doubt or withdrawn; what was un-armed by the same transition, armed once more.
RECORDED: Final[LiteralString] = (
    "recorded AS (INSERT INTO romulus.operations (id, namespace, run, generation, seq, name, digest, arguments, idempotent, key_lifetime, "
    "settle, timeout, has_lookup, state, sends, owner, fence, by_run, first_sent_at, may_leave_until, due, looks, cleared, seen_applied, "
    "awaited, hold_reason, failed, body, created_at, updated_at, ended_at, pool, position) "
    "SELECT x.operation, d.namespace, d.key, d.generation, x.seq, x.name, x.digest, x.arguments, x.idempotent, x.key_lifetime, x.settle, "
    "x.timeout, x.has_lookup, x.state, (x.owner IS NOT NULL OR x.since IS NOT NULL)::integer, x.owner, x.fence, NOT x.pooled, "
    "CASE WHEN x.owner IS NOT NULL THEN c.now ELSE x.since END, x.may_leave_until, CASE WHEN x.is_due THEN c.now END, 0, false, false, "
    "x.awaited, '', false, '', c.now, c.now, CASE x.state WHEN 'withdrawn' THEN c.now END, x.pool, x.position "
    "FROM intents x JOIN done d ON d.id = x.id CROSS JOIN c "
    "ON CONFLICT (run, generation, seq) DO UPDATE SET state = excluded.state, sends = excluded.sends, owner = excluded.owner, "
    "fence = excluded.fence, by_run = true, first_sent_at = excluded.first_sent_at, may_leave_until = excluded.may_leave_until, "
    "awaited = excluded.awaited, updated_at = excluded.updated_at, ended_at = excluded.ended_at RETURNING key, state)"
)
DOUBTED: Final[LiteralString] = (
    "doubted AS (INSERT INTO romulus.doubted (operation) SELECT key FROM recorded WHERE state = 'unknown' ON CONFLICT DO NOTHING)"
)
OF_MINE: Final[LiteralString] = "JOIN done d ON d.id = x.id JOIN mine m ON m.id = x.id AND m.seq = x.seq"
# Un-arming takes the send back.
MARKED: Final[LiteralString] = (
    "marked AS (UPDATE romulus.operations o SET state = x.state, due = x.due, seen_applied = o.seen_applied OR x.seen_applied, "
    "awaited = x.awaited, "
    "ended_at = CASE WHEN x.settled THEN c.now END, updated_at = c.now, owner = NULL, sends = o.sends - x.unsent::integer, "
    f"first_sent_at = CASE WHEN x.unsent THEN NULL ELSE o.first_sent_at END FROM marks x {OF_MINE} CROSS JOIN c "
    "WHERE o.key = m.key AND NOT x.intended)"
)
FORSAKE: Final[LiteralString] = (
    f"forsook AS (UPDATE romulus.operations o SET awaited = false FROM forsaken x {OF_MINE} WHERE o.key = m.key)"
)
LEFT: Final[LiteralString] = (
    "SET awaited = false, state = CASE o.state WHEN 'queued' THEN 'withdrawn' ELSE o.state END, "
    "owner = CASE o.state WHEN 'queued' THEN NULL ELSE o.owner END, due = CASE o.state WHEN 'queued' THEN NULL ELSE o.due END, "
    "ended_at = CASE o.state WHEN 'queued' THEN c.now ELSE o.ended_at END, updated_at = c.now"
)
# What the last transition speaks of was written by it.
LEAVE: Final[LiteralString] = (
    f"left_operations AS (UPDATE romulus.operations o {LEFT} FROM ended e, c WHERE o.run = e.key AND o.generation = e.generation "
    "AND o.awaited"
)
NOT_NAMED: Final[LiteralString] = " AND NOT EXISTS (SELECT 1 FROM named n WHERE n.id = e.id AND n.seq = o.seq)"
LEAVE_ALL: Final[LiteralString] = (
    f"UPDATE romulus.operations o {LEFT} FROM (SELECT romulus.clock() AS now OFFSET 0) c "
    "WHERE o.run = $1 AND o.generation = $2 AND o.awaited"
)

# ---- a hold for a review: what has come meanwhile is read after the run row is locked
LOCK_RUNS: Final[LiteralString] = "SELECT key FROM romulus.runs WHERE key = ANY($1::bigint[]) ORDER BY key FOR UPDATE"
MAILED: Final[LiteralString] = "SELECT DISTINCT run FROM romulus.inbox WHERE run = ANY($1::bigint[]) AND key <> ALL($2::bigint[])"


def check_operations(s: Statement, transitions: Sequence[Transition]) -> bool:
    """Add the locks of what a batch speaks of, before its update of the runs; return whether there is anything."""
    spoken: list[LiteralString] = []
    marks = [_mark(t, m) for t in transitions for m in t.marks]
    if marks:
        s.named_rows("marks", MARKS, marks)
        spoken.append(MARKED_ONES)
    intents = [_intent(t, i) for t in transitions for i in t.intents]
    if intents:
        s.named_rows("intents", INTENTS, intents)
        spoken.append(INTENDED_ONES)
    forsaken = [row for t in transitions for row in _forsaken(t)]
    if forsaken:
        s.named_rows("forsaken", FORSAKEN, forsaken)
        spoken.append(FORSAKEN_ONES)
    if spoken:
        _lock(s, transitions, spoken)
    return bool(spoken)


def _lock(s: Statement, transitions: Sequence[Transition], spoken: list[LiteralString]) -> None:
    union: LiteralString = " UNION ALL ".join(spoken)
    s.part(f"named (id, run, generation, seq, fence, before, how) AS ({union})")
    runs = s.rows("run bigint", [(t.run,) for t in transitions])
    s.part(f"held AS MATERIALIZED (SELECT key FROM romulus.runs WHERE key = ANY(ARRAY(SELECT run FROM {runs} x)) ORDER BY key FOR UPDATE)")
    s.part(MINE)


def write_operations(s: Statement, transitions: Sequence[Transition]) -> None:
    """Add the writing itself, after `done` and `ended` are there."""
    if any(t.intents for t in transitions):
        s.part(RECORDED)
    if any(i.since is not None for t in transitions for i in t.intents):
        s.part(DOUBTED)
    if any(t.marks for t in transitions):
        s.part(MARKED)
    lost = [(t.id, m.seq, t.owner, m.state.value, m.error) for t in transitions for m in t.marks if m.error]
    if lost:
        s.part(
            f"losses AS ({INTO_NOTES}"
            f"SELECT m.key, c.now, 'no answer', x.who, x.state, '{{}}', x.error FROM {s.rows(LOSSES, lost)} x {OF_MINE} CROSS JOIN c)"
        )
    if any(any(_forsaken(t)) for t in transitions):
        s.part(FORSAKE)
    if any(_leaves(t) for t in transitions):
        named: LiteralString = NOT_NAMED if any(_speaks(t) for t in transitions) else ""
        s.part(f"{LEAVE}{named})")


def for_review(t: Transition) -> bool:
    """Return whether *t* holds its run for the review of an operation."""
    return t.hold is not None and t.hold[0] is HoldKind.REVIEW


async def mailed(session: Session, transitions: Sequence[Transition]) -> set[int]:
    """Lock the runs of a batch; return the IDs of those to be held for a review whose inbox has something that may be it."""
    await session.rows("operations.runs", LOCK_RUNS, [t.run for t in transitions])
    reviewed = {t.run: t.id for t in transitions if for_review(t)}
    taken = [key for t in transitions for key in t.taken]
    return {reviewed[run] for (run,) in await session.rows("operations.mailed", MAILED, list(reviewed), taken)}


async def leave_operations(session: Session, generation: int) -> None:
    """Withdraw the queued operations of a generation that a person ends; nobody awaits the others any more."""
    await session.rows("operations.leave", LEAVE_ALL, *generation_parts(generation))


def _speaks(t: Transition) -> bool:
    return bool(t.marks or t.intents or t.forsaken)


def _leaves(t: Transition) -> bool:
    """Return whether what its generation still awaits is left behind with *t*."""
    return t.operates and ends(t)


def _intent(t: Transition, i: NewIntent) -> Row:
    protocol, state = i.protocol, _left(t, i.state)
    armed, pooled = i.state is OperationState.ARMED, i.pool != DEFAULT_POOL and i.state is OperationState.QUEUED
    is_due = state is i.state and (pooled or i.since is not None)
    return (
        t.id, *generation_parts(t.generation), i.seq, t.fence, any(m.seq == i.seq for m in t.marks), i.id, i.name, i.digest, i.arguments,
        protocol.idempotent, protocol.key_lifetime, protocol.settle, protocol.timeout, protocol.has_lookup, state.value,
        t.owner if armed else None, i.may_leave_until, i.pool, pooled, is_due, not _leaves(t), i.position, i.since,
    )  # fmt: skip


def _mark(t: Transition, m: OperationMark) -> Row:
    state = _left(t, m.state)
    awaited = m.awaited and m.seq not in t.forsaken and not _leaves(t)
    intended = any(i.seq == m.seq for i in t.intents)
    before = m.before.value if not intended or m.state is OperationState.QUEUED else ""  # what has ended is not armed: nothing is so
    return (
        t.id, *generation_parts(t.generation), m.seq, t.fence, before, intended, state.value, m.due, m.seen_applied, awaited,
        state in SETTLED, m.before is OperationState.ARMED and m.state in UNSENT,
    )  # fmt: skip


def _forsaken(t: Transition) -> Iterator[Row]:
    """Yield what *t* forsakes of operations that it does not mark."""
    marked = {m.seq for m in t.marks}
    return ((t.id, *generation_parts(t.generation), seq) for seq in t.forsaken if seq not in marked)


def _left(t: Transition, state: OperationState) -> OperationState:
    """Return what becomes of an operation that *t* leaves in *state*: a queued one is withdrawn where its generation ends."""
    return OperationState.WITHDRAWN if _leaves(t) and state is OperationState.QUEUED else state
