"""Taking runs in one statement, where a look has seen that all that is due can be taken: those of one queue, or those with a wake.

Locking rows and reading what belongs to them needs two statements, since what a statement reads is of before it locked. So only a row
is taken whose newest version the statement sees (`ctid`): nothing was written to it since. That says as much for what belongs to it:
whoever takes a deposit's wake away without being the run's owner writes to the run, and a wake that the statement does not see stays.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from typing import Final, LiteralString

from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest

from .floors import lowest
from .looking import MANY, READY, SERVED, SPREAD, WAKES_MAX, Look, Queue, conditions
from .rows import RECORD, record_of, served
from .session import Session

ONE: Final[LiteralString] = "(SELECT $6::text AS workflow, $7::text AS version, $8::text AS digest) s, (SELECT $9::bigint AS now) c"
DUE: Final[LiteralString] = (
    f"FROM romulus.runs r, {ONE} WHERE {SPREAD} AND r.lane = $10 AND r.queue_at >= $11 AND ($10 <> 0 OR r.queue_at <= c.now) "
    f"AND {READY} AND r.owner IS NULL ORDER BY r.queue_at, r.key LIMIT $5 FOR UPDATE OF r SKIP LOCKED"
)


def claimed(owner: LiteralString, now: LiteralString, status: LiteralString) -> LiteralString:
    """Return what a claim by *owner* at *now* makes of a run `r` and its generation `g`."""
    return (
        f"owner = {owner}, fence = greatest(r.fence + 1, {now}), status = {status}, started_at = coalesce(r.started_at, {now}), "
        f"deadline = coalesce(r.deadline, {now} + g.timeout), wake_at = NULL, lane = 0, queue_at = NULL, updated_at = {now}"
    )


def live(owner: LiteralString) -> LiteralString:
    """Return the condition that nobody has marked *owner* dead: its claims would be void at once."""
    return f"EXISTS (SELECT 1 FROM romulus.workers k WHERE k.id = {owner} AND NOT k.dead)"


# Of what has been locked, the version that is seen; its generation is reached by its key, whatever statistics say (OFFSET 0).
SAME: Final[LiteralString] = (
    "FROM l CROSS JOIN LATERAL (SELECT * FROM romulus.generations WHERE run = l.key AND number = l.generation OFFSET 0) g "
    "WHERE r.key = l.key AND r.ctid = l.at"
)
LOCKED: Final[LiteralString] = "l AS MATERIALIZED (SELECT r.key, r.ctid AS at, r.generation"
QUEUE: Final[LiteralString] = (
    f"WITH {LOCKED}, r.queue_at {DUE}) "
    f"UPDATE romulus.runs r SET {claimed('$12', '$9', '$13')} {SAME} AND {live('$12')} "
    f"RETURNING {RECORD}, l.queue_at"
)
LOWEST: Final[LiteralString] = lowest("wakes", "$11", "$12", "$13")
WOKEN: Final[LiteralString] = (
    f"WITH w AS MATERIALIZED (SELECT run FROM romulus.wakes WHERE key >= {LOWEST} ORDER BY key LIMIT {MANY}), "
    f"{LOCKED}, r.status = 'waiting' AND r.namespace = $1 AND r.digest <> ALL($2::text[]) "
    f"AND r.losses < $3 AND EXISTS (SELECT 1 FROM unnest($5::text[], $6::text[], $7::text[]) {SERVED}) AS fits FROM romulus.runs r "
    "WHERE r.key = ANY(ARRAY(SELECT run FROM w)) AND r.owner IS NULL ORDER BY r.key LIMIT $4 FOR UPDATE OF r SKIP LOCKED), "
    f"taken AS (UPDATE romulus.runs r SET {claimed('$9', '$8', '$10')} {SAME} AND l.fits "
    f"AND {live('$9')} RETURNING {RECORD}), "
    f"gone AS (DELETE FROM romulus.wakes w USING taken t WHERE w.key >= {LOWEST} AND w.run = t.key) "
    "SELECT (SELECT count(*) FROM w), (SELECT count(*) FROM l), t.* FROM (SELECT 1) one LEFT JOIN taken t ON true"
)


async def take_queue(session: Session, request: ClaimRequest, to: RunStatus, seen: Look, queue: Queue, count: int) -> list[Record]:
    """Take the first *count* runs of one queue; what others have locked or written to is left."""
    n, lane = queue
    given = (*conditions(request, count), *request.serves[n], seen.now, lane, seen.floor(n, lane), request.owner, to.value)
    rows = await session.rows("claim.queue", QUEUE, *given)
    return [record_of(row[:-1]) for row in sorted(rows, key=lambda row: (row[-1], row[0]))]


async def take_woken(session: Session, request: ClaimRequest, to: RunStatus, seen: Look, limit: int) -> tuple[list[Record], bool]:
    """Take up to *limit* parked runs that have a wake, without their becoming due; return whether there may be more with one."""
    given = (
        request.namespace,
        list(request.others),
        request.alone_after,
        limit,
        *served(request.serves),
        seen.now,
        request.owner,
        to.value,
    )
    rows = await session.rows("claim.woken", WOKEN, *given, *seen.lists.wakes)
    records = [record_of(row[2:]) for row in rows if row[2] is not None]
    wakes, sleeping, *_ = rows[0]
    return records, wakes >= WAKES_MAX or sleeping >= limit or sleeping > len(records)
