"""Operations: claimed and settled by any worker, and read; their run's transition writes them in `operating`, reports in `reporting`."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString, NamedTuple

from romulus.core.operations import OperationNote, OperationRow, OperationState, Protocol
from romulus.store.contract import Listed, OperationsServed, TakenOperations
from romulus.store.paging import page, position

from .rows import Row, generation_parts
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

# ---- histories
INTO_NOTES: Final[LiteralString] = "INSERT INTO romulus.operation_notes (operation, at, kind, who, state, detail, body) "
ADD_NOTES: Final[LiteralString] = INTO_NOTES + (
    "SELECT operation, at, kind, who, state, detail, body FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], "
    "$6::text[], $7::bytea[]) WITH ORDINALITY x (operation, at, kind, who, state, detail, body, n) ORDER BY n"
)

# ---- settling
# Values, not EXISTS: each claim's run or worker is looked up by its key, and never are all runs read into a hash table.
CLAIM_OVER: Final[LiteralString] = (
    "o.owner IS NOT NULL AND NOT coalesce(CASE WHEN o.by_run THEN (SELECT r.owner = o.owner AND r.fence = o.fence FROM romulus.runs r "
    "WHERE r.key = o.run) ELSE (SELECT NOT w.dead FROM romulus.workers w WHERE w.id = o.owner) END, false)"
)
LOST: Final[LiteralString] = f"SELECT o.key FROM romulus.operations o WHERE {CLAIM_OVER} LIMIT 1"
# By the index of owners, which has the few that are claimed: by that of keys, all that a server ever sent was read.
LOCK_LOST: Final[LiteralString] = (
    "SELECT o.key FROM romulus.operations o WHERE o.key = ANY(ARRAY(SELECT key FROM romulus.operations WHERE owner IS NOT NULL "
    f"ORDER BY owner)) AND {CLAIM_OVER} ORDER BY o.key LIMIT 1000 FOR UPDATE OF o SKIP LOCKED"
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
    "o.namespace = $1 AND o.due IS NOT NULL AND o.name = ANY($3::text[]) AND (NOT o.has_lookup OR o.name = ANY($4::text[])) "
    "AND o.key <> ALL($5::bigint[])"
)
NEXT_OF: Final[LiteralString] = f"SELECT p.pool, (SELECT o.due FROM romulus.operations o WHERE {FITTING} AND o.pool = p.pool AND o.state "
EARLIEST: Final[LiteralString] = (
    " 'queued' ORDER BY o.due LIMIT 1) AS due, romulus.clock(), EXISTS (SELECT 1 FROM romulus.workers WHERE id = $6 AND NOT dead) "
    "FROM unnest($2::text[]) p (pool) ORDER BY due"
)
NEXT: Final[LiteralString] = f"{NEXT_OF}<>{EARLIEST}"
NEXT_QUEUED: Final[LiteralString] = f"{NEXT_OF}={EARLIEST}"
LOCK_OF: Final[LiteralString] = f"SELECT o.key FROM romulus.operations o WHERE {FITTING} AND o.pool = $2 AND o.state "
FIRST: Final[LiteralString] = " 'queued' AND o.due <= $6 ORDER BY o.due, o.key LIMIT $7 FOR UPDATE SKIP LOCKED"
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
ONE: Final[LiteralString] = f"SELECT {OPERATION} {FROM} WHERE (o.namespace || '') = $1 AND o.id = $2"
AWAITED: Final[LiteralString] = f"SELECT {OPERATION} {FROM} WHERE o.run = $1 AND o.generation = $2 AND o.awaited ORDER BY o.seq"
OPEN: Final[LiteralString] = (
    f"SELECT {OPERATION} {FROM} WHERE o.run = $1 AND o.generation = $2 AND o.state IN ('armed', 'unknown', 'resend', 'held') ORDER BY o.seq"
)
LISTED: Final[LiteralString] = (
    f"SELECT {OPERATION} {FROM} WHERE o.namespace = $1 AND o.key > $2 AND ($3::text IS NULL OR o.state = $3) "
    "AND ($4::bigint IS NULL OR o.run = $4) ORDER BY o.key LIMIT $5"
)
HISTORY: Final[LiteralString] = "SELECT at, kind, who, state, detail, body FROM romulus.operation_notes WHERE operation = $1 ORDER BY key"


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
    given = (namespace, list(serves.pools), list(serves.names), list(serves.lookups), list(serves.aside), owner)
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
            fits = (namespace, pool, list(serves.names), list(serves.lookups), list(serves.aside))
            given = (*fits, seen.now, limit - len(keys))
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
