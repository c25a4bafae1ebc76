"""Operations: recorded and marked by their run's transition, claimed and settled by any worker; what these report is in `reporting`.

Other than waits, an operation is changed by others while its run goes on. So a batch that speaks of operations first locks its run rows,
then these operations, and only then checks and writes, each statement with a snapshot of after the locks. Reports lock in the same order.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString, NamedTuple

from romulus.core.operations import SETTLED, OperationNote, OperationRow, OperationState, Protocol
from romulus.core.pools import DEFAULT_POOL
from romulus.core.record import HoldKind
from romulus.core.transition import Transition
from romulus.store.contract import Listed, OperationsServed, TakenOperations
from romulus.store.paging import page, position

from .rows import Row, columns, generation_parts
from .session import Session


class Look(NamedTuple):
    """When the next operation of each pool is due, the earliest first, the store's clock, and whether the asking worker lives."""

    due: list[tuple[str, int]]
    now: int
    live: bool

    @property
    def next(self) -> int | None:
        """Return when the next operation of any is due."""
        return self.due[0][1] if self.due else None

    @property
    def is_due(self) -> bool:
        """Return whether one is due now."""
        return bool(self.due) and self.due[0][1] <= self.now


# In the order of `operation_of`.
OPERATION: Final[LiteralString] = (
    "o.key, o.id, o.namespace, o.run, r.id, r.workflow, r.version, (o.run << 24) | o.generation, o.seq, o.name, o.digest, o.arguments, "
    "o.pool, o.idempotent, o.key_lifetime, o.settle, o.timeout, o.has_lookup, o.state, o.sends, o.owner, o.fence, o.by_run, "
    "o.first_sent_at, o.may_leave_until, o.due, o.looks, o.cleared, o.seen_applied, o.awaited, o.hold_reason, o.failed, o.body, "
    "o.created_at, o.updated_at, o.ended_at, EXISTS (SELECT 1 FROM romulus.doubted d WHERE d.operation = o.key), o.position"
)
FROM: Final[LiteralString] = "FROM romulus.operations o JOIN romulus.runs r ON r.key = o.run"

# ---- the run's own transition
LOCK_RUNS: Final[LiteralString] = "SELECT key FROM romulus.runs WHERE key = ANY($1::bigint[]) ORDER BY key FOR UPDATE"
LOCK_OWN: Final[LiteralString] = (
    "SELECT o.key FROM romulus.operations o JOIN unnest($1::bigint[], $2::integer[], $3::integer[]) x (run, generation, seq) "
    "ON o.run = x.run AND o.generation = x.generation AND o.seq = x.seq ORDER BY o.key FOR UPDATE OF o"
)
UNMARKED: Final[LiteralString] = (
    "SELECT x.id FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::bigint[]) "
    "x (id, run, generation, seq, before, fence) WHERE NOT EXISTS (SELECT 1 FROM romulus.operations o WHERE o.run = x.run "
    "AND o.generation = x.generation AND o.seq = x.seq AND o.state = x.before AND (x.before <> 'armed' OR o.fence = x.fence))"
)
UNINTENDED: Final[LiteralString] = (
    "SELECT x.id FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[]) x (id, run, generation, seq) "
    "JOIN romulus.operations o ON o.run = x.run AND o.generation = x.generation AND o.seq = x.seq WHERE o.state <> 'queued'"
)
MAILED: Final[LiteralString] = "SELECT DISTINCT run FROM romulus.inbox WHERE run = ANY($1::bigint[]) AND key <> ALL($2::bigint[])"
INTENDED: Final[LiteralString] = (
    "INSERT INTO romulus.operations (id, namespace, run, generation, seq, name, digest, arguments, idempotent, key_lifetime, settle, "
    "timeout, has_lookup, state, sends, owner, fence, by_run, first_sent_at, may_leave_until, due, looks, cleared, seen_applied, awaited, "
    "hold_reason, failed, body, created_at, updated_at, pool, position) SELECT x.id, r.namespace, x.run, x.generation, x.seq, "
    "x.name, x.digest, x.arguments, x.idempotent, x.key_lifetime, x.settle, x.timeout, x.has_lookup, x.state, "
    "(x.armed OR x.since IS NOT NULL)::integer, "
    "x.owner, x.fence, NOT x.pooled, CASE WHEN x.armed THEN c.now ELSE x.since END, x.may_leave_until, "
    "CASE WHEN x.pooled OR x.since IS NOT NULL THEN c.now END, 0, "
    "false, false, true, '', false, '', c.now, c.now, x.pool, x.position "
    "FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::text[], $7::bytea[], $8::boolean[], $9::bigint[], "
    "$10::bigint[], $11::bigint[], $12::boolean[], $13::text[], $14::boolean[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], "
    "$19::boolean[], $20::integer[], $21::bigint[]) "
    "x (id, run, generation, seq, name, digest, arguments, idempotent, key_lifetime, settle, timeout, has_lookup, state, armed, owner, "
    "fence, may_leave_until, pool, pooled, position, since) JOIN romulus.runs r ON r.key = x.run, "
    "(SELECT romulus.clock() AS now OFFSET 0) c "
    "ON CONFLICT (run, generation, seq) DO UPDATE SET state = excluded.state, sends = excluded.sends, owner = excluded.owner, "
    "fence = excluded.fence, by_run = true, first_sent_at = excluded.first_sent_at, may_leave_until = excluded.may_leave_until, "
    "updated_at = excluded.updated_at WHERE operations.state = 'queued'"
)
DOUBTED: Final[LiteralString] = (
    "INSERT INTO romulus.doubted (operation) SELECT o.key FROM unnest($1::bigint[], $2::integer[], $3::integer[]) x (run, generation, seq) "
    "JOIN romulus.operations o ON o.run = x.run AND o.generation = x.generation AND o.seq = x.seq"
)
# Un-arming takes the send back.
MARKED: Final[LiteralString] = (
    "UPDATE romulus.operations o SET state = x.state, due = x.due, seen_applied = o.seen_applied OR x.seen_applied, awaited = x.awaited, "
    "ended_at = CASE WHEN x.settled THEN c.now END, updated_at = c.now, owner = NULL, "
    "sends = o.sends - (x.before = 'armed' AND x.state = 'queued')::integer, "
    "first_sent_at = CASE x.state WHEN 'queued' THEN NULL ELSE o.first_sent_at END "
    "FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::boolean[], $8::boolean[], "
    "$9::boolean[]) x (run, generation, seq, before, state, due, seen_applied, awaited, settled), "
    "(SELECT romulus.clock() AS now OFFSET 0) c WHERE o.run = x.run AND o.generation = x.generation AND o.seq = x.seq"
)
INTO_NOTES: Final[LiteralString] = "INSERT INTO romulus.operation_notes (operation, at, kind, who, state, detail, body) "
ADD_NOTES: Final[LiteralString] = INTO_NOTES + (
    "SELECT operation, at, kind, who, state, detail, body FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], "
    "$6::text[], $7::bytea[]) WITH ORDINALITY x (operation, at, kind, who, state, detail, body, n) ORDER BY n"
)
LOSSES: Final[LiteralString] = INTO_NOTES + (
    "SELECT o.key, romulus.clock(), 'no answer', x.who, x.state, '{}', x.error FROM unnest($1::bigint[], $2::integer[], $3::integer[], "
    "$4::text[], $5::text[], $6::bytea[]) x (run, generation, seq, who, state, error) JOIN romulus.operations o ON o.run = x.run "
    "AND o.generation = x.generation AND o.seq = x.seq"
)
FORSAKE: Final[LiteralString] = (
    "UPDATE romulus.operations o SET awaited = false FROM unnest($1::bigint[], $2::integer[], $3::integer[]) x (run, generation, seq) "
    "WHERE o.run = x.run AND o.generation = x.generation AND o.seq = x.seq"
)
LEAVE: Final[LiteralString] = (
    "UPDATE romulus.operations o SET awaited = false, state = CASE o.state WHEN 'queued' THEN 'withdrawn' ELSE o.state END, "
    "owner = CASE o.state WHEN 'queued' THEN NULL ELSE o.owner END, due = CASE o.state WHEN 'queued' THEN NULL ELSE o.due END, "
    "ended_at = CASE o.state WHEN 'queued' THEN c.now ELSE o.ended_at END, updated_at = c.now "
    "FROM unnest($1::bigint[], $2::integer[]) x (run, generation), (SELECT romulus.clock() AS now OFFSET 0) c "
    "WHERE o.run = x.run AND o.generation = x.generation AND o.awaited"
)

# ---- settling
# Values, not EXISTS: each claim's run or worker is looked up by its key, and never are all runs read into a hash table.
CLAIM_OVER: Final[LiteralString] = (
    "o.owner IS NOT NULL AND NOT coalesce(CASE WHEN o.by_run THEN (SELECT r.owner = o.owner AND r.fence = o.fence FROM romulus.runs r "
    "WHERE r.key = o.run) ELSE (SELECT NOT w.dead FROM romulus.workers w WHERE w.id = o.owner) END, false)"
)
LOST: Final[LiteralString] = f"SELECT o.key FROM romulus.operations o WHERE {CLAIM_OVER} LIMIT 1"
LOCK_LOST: Final[LiteralString] = (
    f"SELECT o.key FROM romulus.operations o WHERE {CLAIM_OVER} ORDER BY o.key LIMIT 1000 FOR UPDATE OF o SKIP LOCKED"
)
NOTE_LOST: Final[LiteralString] = INTO_NOTES + (
    "SELECT key, romulus.clock(), 'lost', owner, $2::text, '{}', '' FROM romulus.operations WHERE key = ANY($1::bigint[]) "
    "AND state = 'armed'"
)
GIVE_UP: Final[LiteralString] = (
    "UPDATE romulus.operations o SET state = CASE o.state WHEN 'armed' THEN $2::text ELSE o.state END, owner = NULL, due = c.now, "
    "updated_at = c.now FROM (SELECT romulus.clock() AS now OFFSET 0) c WHERE o.key = ANY($1::bigint[])"
)
# Each pool is asked for on its own, so that the index gives its rows in order.
FITTING: Final[LiteralString] = (
    "o.namespace = $1 AND o.due IS NOT NULL AND o.name = ANY($3::text[]) AND (NOT o.has_lookup OR o.name = ANY($4::text[]))"
)
NEXT_OF: Final[LiteralString] = f"SELECT p.pool, (SELECT o.due FROM romulus.operations o WHERE {FITTING} AND o.pool = p.pool AND o.state "
EARLIEST: Final[LiteralString] = (
    " 'queued' ORDER BY o.due LIMIT 1) AS due, romulus.clock(), EXISTS (SELECT 1 FROM romulus.workers WHERE id = $5 AND NOT dead) "
    "FROM unnest($2::text[]) p (pool) ORDER BY due"
)
NEXT: Final[LiteralString] = f"{NEXT_OF}<>{EARLIEST}"
NEXT_QUEUED: Final[LiteralString] = f"{NEXT_OF}={EARLIEST}"
LOCK_OF: Final[LiteralString] = f"SELECT o.key FROM romulus.operations o WHERE {FITTING} AND o.pool = $2 AND o.state "
FIRST: Final[LiteralString] = " 'queued' AND o.due <= $5 ORDER BY o.due, o.key LIMIT $6 FOR UPDATE SKIP LOCKED"
LOCK_DUE: Final[LiteralString] = f"{LOCK_OF}<>{FIRST}"
LOCK_QUEUED: Final[LiteralString] = f"{LOCK_OF}={FIRST}"
# Of all pools: few are overdue, or nobody would settle any. Ordered by no index, lest all that a namespace ever sent is read in order.
UNSERVED: Final[LiteralString] = (
    f"SELECT {OPERATION} {FROM} WHERE o.namespace = $1 AND o.due IS NOT NULL AND o.state <> 'queued' AND o.state <> 'held' "
    "AND o.due <= (SELECT romulus.clock()) - $2::bigint AND NOT EXISTS (SELECT 1 FROM unnest($3::text[], $4::text[], $5::boolean[]) "
    "s (pool, name, looks) WHERE s.pool = o.pool AND s.name = o.name AND (NOT o.has_lookup OR s.looks)) ORDER BY o.due, o.key LIMIT $6"
)
TAKE: Final[LiteralString] = (
    "UPDATE romulus.operations o SET owner = $2, fence = greatest(o.fence + 1, $3), by_run = false, due = NULL, updated_at = $3 "
    f"FROM romulus.runs r WHERE r.key = o.run AND o.key = ANY($1::bigint[]) RETURNING {OPERATION}"
)

# ---- reads
ONE: Final[LiteralString] = f"SELECT {OPERATION} {FROM} WHERE o.namespace = $1 AND o.id = $2"
AWAITED: Final[LiteralString] = f"SELECT {OPERATION} {FROM} WHERE o.run = $1 AND o.generation = $2 AND o.awaited ORDER BY o.seq"
OPEN: Final[LiteralString] = (
    f"SELECT {OPERATION} {FROM} WHERE o.run = $1 AND o.generation = $2 AND o.state IN ('armed', 'unknown', 'resend', 'held') ORDER BY o.seq"
)
LISTED: Final[LiteralString] = (
    f"SELECT {OPERATION} {FROM} WHERE o.namespace = $1 AND o.key > $2 AND ($3::text IS NULL OR o.state = $3) "
    "AND ($4::bigint IS NULL OR o.run = $4) ORDER BY o.key LIMIT $5"
)
HISTORY: Final[LiteralString] = "SELECT at, kind, who, state, detail, body FROM romulus.operation_notes WHERE operation = $1 ORDER BY key"


# ---- written by the run's own transition -----------------------------------------------------------


def concerned(t: Transition) -> bool:
    """Return whether *t* speaks of operations, or holds its run for the review of one."""
    return bool(t.marks or t.intents or t.forsaken or t.operates) or _for_review(t)


async def unfit(session: Session, transitions: Sequence[Transition]) -> set[int]:
    """Lock what a batch speaks of, runs before operations; return the IDs of transitions whose operations, or inbox, forbid them."""
    await session.rows("operations.runs", LOCK_RUNS, [t.run for t in transitions])
    marks = [(t.id, *generation_parts(t.generation), m.seq, m.before.value, t.fence) for t in transitions for m in t.marks]
    intents = [(t.id, *generation_parts(t.generation), i.seq) for t in transitions for i in t.intents]
    if marks or intents:
        own = [row[1:4] for row in (*marks, *intents)]
        await session.rows("operations.lock", LOCK_OWN, *columns(own))
    bad: set[int] = set()
    if marks:
        bad |= {found for (found,) in await session.rows("operations.unmarked", UNMARKED, *columns(marks))}
    if intents:
        bad |= {found for (found,) in await session.rows("operations.unintended", UNINTENDED, *columns(intents))}
    reviewed = {t.run: t.id for t in transitions if _for_review(t)}
    if reviewed:
        taken = [key for t in transitions for key in t.taken]
        bad |= {reviewed[run] for (run,) in await session.rows("operations.mailed", MAILED, list(reviewed), taken)}
    return bad


async def write_operations(session: Session, transitions: Sequence[Transition]) -> None:
    """Record the intents and marks of *transitions*, whose guards held."""
    intents = [_intent(t, i) for t in transitions for i in t.intents]
    if intents:
        await session.rows("operations.intended", INTENDED, *columns(intents))
    doubted = [(*generation_parts(t.generation), i.seq) for t in transitions for i in t.intents if i.since is not None]
    if doubted:
        await session.rows("operations.doubted", DOUBTED, *columns(doubted))
    marks = [(*generation_parts(t.generation), m.seq, m.before.value, m.state.value, m.due, m.seen_applied, m.awaited, m.state in SETTLED)
             for t in transitions for m in t.marks]  # fmt: skip
    if marks:
        await session.rows("operations.marked", MARKED, *columns(marks))
    lost = [(*generation_parts(t.generation), m.seq, t.owner, m.state.value, m.error) for t in transitions for m in t.marks if m.error]
    if lost:
        await session.rows("operations.losses", LOSSES, *columns(lost))
    forsaken = [(*generation_parts(t.generation), seq) for t in transitions for seq in t.forsaken]
    if forsaken:
        await session.rows("operations.forsaken", FORSAKE, *columns(forsaken))


async def leave_operations(session: Session, generations: Sequence[int]) -> None:
    """Withdraw the queued operations of generations that end; nobody awaits the others any more."""
    if generations:
        await session.rows("operations.leave", LEAVE, *columns([generation_parts(key) for key in generations]))


def _for_review(t: Transition) -> bool:
    return t.hold is not None and t.hold[0] is HoldKind.REVIEW


def _intent(t: Transition, i: Any) -> Row:
    armed = i.state is OperationState.ARMED
    pooled = i.pool != DEFAULT_POOL and i.state is OperationState.QUEUED
    return (
        i.id, *generation_parts(t.generation), i.seq, i.name, i.digest, i.arguments, i.protocol.idempotent, i.protocol.key_lifetime,
        i.protocol.settle, i.protocol.timeout, i.protocol.has_lookup, i.state.value, armed, t.owner if armed else None, t.fence,
        i.may_leave_until, i.pool, pooled, i.position, i.since,
    )  # fmt: skip


# ---- settling ---------------------------------------------------------------------------------------


async def nothing_to_take(
    session: Session, owner: str, namespace: str, serves: OperationsServed, lost: OperationState | None
) -> TakenOperations | None:
    """Return the answer where nothing is due and no claim is over; None: there is something to do."""
    seen = await _look(session, NEXT, owner, namespace, serves)
    if seen.is_due or (lost is not None and await session.rows("operations.lost", LOST)):
        return None
    return TakenOperations((), seen.next)


async def nothing_queued(session: Session, owner: str, namespace: str, serves: OperationsServed) -> TakenOperations | None:
    """Return the answer where nothing is due of what is queued; None: something is."""
    seen = await _look(session, NEXT_QUEUED, owner, namespace, serves)
    return None if seen.is_due else TakenOperations((), seen.next)


async def take(
    session: Session, owner: str, namespace: str, serves: OperationsServed, limit: int, lost: OperationState | None
) -> TakenOperations:
    """Claim due operations inside the open transaction; see `Store.take_operations`."""
    if lost is not None:
        await _give_up(session, lost)
    return await _claimed(session, owner, namespace, serves, limit, NEXT, LOCK_DUE)


async def _give_up(session: Session, lost: OperationState) -> None:
    """Take what is claimed by claims that are over off them."""
    over = [key for (key,) in await session.rows("operations.over", LOCK_LOST)]
    if over:
        await session.rows("operations.note_lost", NOTE_LOST, over, lost.value)
        await session.rows("operations.give_up", GIVE_UP, over, lost.value)


async def take_queued(session: Session, owner: str, namespace: str, serves: OperationsServed, limit: int) -> TakenOperations:
    """Claim operations that are queued in pools inside the open transaction; see `Store.take_queued`."""
    return await _claimed(session, owner, namespace, serves, limit, NEXT_QUEUED, LOCK_QUEUED)


async def unserved(
    session: Session, namespace: str, served: Sequence[tuple[str, str, bool]], overdue: int, limit: int
) -> list[OperationRow]:  # fmt: skip
    """Return what nobody can settle; see `Store.unserved_operations`."""
    columns = [[each[place] for each in served] for place in range(3)]
    return [operation_of(row) for row in await session.rows("operations.unserved", UNSERVED, namespace, overdue, *columns, limit)]


async def _look(session: Session, following: LiteralString, owner: str, namespace: str, serves: OperationsServed) -> Look:
    given = (namespace, list(serves.pools), list(serves.names), list(serves.lookups), owner)
    rows = await session.rows("operations.next", following, *given)
    due = [(pool, due) for pool, due, *_ in rows if due is not None]
    return Look(due, *rows[0][2:]) if rows else Look([], 0, live=False)


async def _claimed(
    session: Session, owner: str, namespace: str, serves: OperationsServed, limit: int, following: LiteralString, lock: LiteralString
) -> TakenOperations:  # fmt: skip
    seen = await _look(session, following, owner, namespace, serves)
    keys: list[int] = []
    for pool, due in seen.due if seen.live else ():
        if due <= seen.now and len(keys) < limit:
            given = (namespace, pool, list(serves.names), list(serves.lookups), seen.now, limit - len(keys))
            keys += [key for (key,) in await session.rows("operations.due", lock, *given)]
    rows = [operation_of(taken) for taken in await session.rows("operations.take", TAKE, keys, owner, seen.now)] if keys else []
    rows.sort(key=lambda row: keys.index(row.key))
    return TakenOperations(rows, (await _look(session, following, owner, namespace, serves)).next)


# ---- reads ------------------------------------------------------------------------------------------


async def find(session: Session, namespace: str, operation_id: str) -> OperationRow | None:
    """Return the operation of that ID."""
    row = await session.row("operations.find", ONE, namespace, operation_id)
    return None if row is None else operation_of(row)


async def of_generation(session: Session, generation: int) -> list[OperationRow]:
    """Return the operations that *generation* awaits, in command order."""
    return [operation_of(row) for row in await session.rows("operations.awaited", AWAITED, *generation_parts(generation))]


async def open_of(session: Session, generation: int) -> list[OperationRow]:
    """Return the operations of *generation* that may have been sent and are not settled, in command order."""
    return [operation_of(row) for row in await session.rows("operations.open", OPEN, *generation_parts(generation))]


async def listed(
    session: Session, namespace: str, state: OperationState | None, run: int | None, after: str | None, limit: int
) -> Listed[OperationRow]:
    """Return a page of operations in the order they were recorded."""
    found = await session.rows("operations.list", LISTED, namespace, position(after), None if state is None else state.value, run, limit)
    return page([operation_of(row) for row in found], limit, lambda row: row.key)


async def notes(session: Session, key: int) -> list[OperationNote]:
    """Return an operation's history."""
    return [OperationNote(*row) for row in await session.rows("operations.history", HISTORY, key)]


def operation_of(row: Row) -> OperationRow:
    """Return the operation of a row of `OPERATION`."""
    values: list[Any] = [*row[:13], Protocol(*row[13:18]), OperationState(row[18]), *row[19:]]
    return OperationRow(*values)
