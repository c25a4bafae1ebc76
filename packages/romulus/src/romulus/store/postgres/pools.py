"""Attempts in pools: queued and deleted by their run's transition, claimed, kept and reported by whichever worker serves the pool.

A batch has locked its run rows when it comes here; then attempts are locked by their keys, here as by whoever works them, and workers lock
nothing of a run. What is told of an attempt is inserted while its row is locked, so that the end of its generation, which deletes the row
first and the messages after, leaves none behind. A renewal waits for no attempt that somebody else has locked, and what waits for one in
vain passes it over: its worker works others too.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString, NamedTuple

from romulus.core.pools import PoolAttempt, PoolBeat, PoolEnd, PoolReport, PoolStanding, TakenPool
from romulus.core.transition import Transition
from romulus.store.contract import EVIDENCE_MAX, UNREAD_MAX, QueuedPool

from .ending import ends
from .owners import gone_owners
from .rows import Row, generation_parts
from .session import Session


class Look(NamedTuple):
    """When the next attempt of each pool is due, the earliest first, and the store's clock."""

    due: list[tuple[str, int]]
    now: int

    @property
    def next(self) -> int | None:
        """Return when the next attempt of any is due."""
        return self.due[0][1] if self.due else None


# ---- the run's own transition
LOCK_OWN: Final[LiteralString] = (
    "SELECT a.key FROM romulus.pool_attempts a JOIN unnest($1::bigint[], $2::integer[], $3::integer[]) x (run, generation, seq) "
    "ON a.run = x.run AND a.generation = x.generation AND a.seq = x.seq ORDER BY a.key FOR UPDATE OF a"
)
LOCK_LEFT: Final[LiteralString] = (
    "SELECT a.key FROM romulus.pool_attempts a JOIN unnest($1::bigint[], $2::integer[]) x (run, generation) "
    "ON a.run = x.run AND a.generation = x.generation ORDER BY a.key FOR UPDATE OF a"
)
DELETE: Final[LiteralString] = "DELETE FROM romulus.pool_attempts WHERE key = ANY($1::bigint[]) RETURNING state"
FORGET: Final[LiteralString] = "DELETE FROM romulus.inbox WHERE run = ANY($1::bigint[]) AND about = 'pool'"
QUEUE: Final[LiteralString] = (
    "INSERT INTO romulus.pool_attempts (namespace, run, generation, seq, pool, step, digest, arguments, number, timeout, "
    "heartbeat_timeout, heartbeat, state, fence, due) SELECT r.namespace, x.run, x.generation, x.seq, x.pool, x.step, x.digest, "
    "x.arguments, x.number, x.timeout, x.heartbeat_timeout, x.heartbeat, 'queued', x.fence, CASE x.due WHEN 0 THEN c.now ELSE x.due END "
    "FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::integer[], $9::bigint[], "
    "$10::bigint[], $11::bytea[], $12::bigint[], $13::bigint[]) WITH ORDINALITY x (run, generation, seq, pool, step, digest, arguments, "
    "number, timeout, heartbeat_timeout, heartbeat, fence, due, n) JOIN romulus.runs r ON r.key = x.run, "
    "(SELECT romulus.clock() AS now OFFSET 0) c ORDER BY x.n"
)

# ---- a pool's workers
RENEW: Final[LiteralString] = (
    "WITH own AS MATERIALIZED (SELECT key FROM romulus.pool_attempts WHERE owner = $1 AND key = ANY($3::bigint[]) ORDER BY key "
    "FOR UPDATE SKIP LOCKED) UPDATE romulus.pool_attempts a SET lease_until = c.now + $2 "
    "FROM own, (SELECT romulus.clock() AS now OFFSET 0) c WHERE a.key = own.key"
)
# Each pool is asked for on its own, so that the index gives its rows in order.
FITTING: Final[LiteralString] = "a.namespace = $1 AND a.due IS NOT NULL AND a.step = ANY($3::text[]) AND a.key <> ALL($4::bigint[])"
NEXT: Final[LiteralString] = (
    f"SELECT p.pool, (SELECT a.due FROM romulus.pool_attempts a WHERE {FITTING} AND a.pool = p.pool ORDER BY a.due LIMIT 1) AS due, "
    "romulus.clock() FROM unnest($2::text[]) p (pool) ORDER BY due"
)
LOCK_DUE: Final[LiteralString] = (
    f"SELECT a.key FROM romulus.pool_attempts a WHERE {FITTING} AND a.pool = $2 AND a.due <= $5 ORDER BY a.due, a.key LIMIT $6 "
    "FOR UPDATE SKIP LOCKED"
)
TAKE: Final[LiteralString] = (
    "UPDATE romulus.pool_attempts SET state = 'claimed', owner = $2, fence = greatest(fence + 1, $3), lease_until = $3 + $4, due = NULL, "
    "claimed_at = $3, beat_at = NULL WHERE key = ANY($1::bigint[])"
)
TAKEN: Final[LiteralString] = (
    "SELECT a.key, a.run, (a.run << 24) | a.generation, r.id, a.namespace, r.workflow, r.version, r.generation, r.depth, "
    "coalesce(g.started_at, r.started_at, r.created_at), g.seeds, a.seq, a.pool, a.step, a.digest, a.arguments, a.number, a.timeout, "
    "a.heartbeat_timeout, a.heartbeat, a.fence FROM romulus.pool_attempts a JOIN romulus.runs r ON r.key = a.run "
    "JOIN romulus.generations g ON g.run = a.run AND g.number = a.generation WHERE a.key = ANY($1::bigint[]) "
    "ORDER BY array_position($1::bigint[], a.key)"
)
LIVE: Final[LiteralString] = "SELECT EXISTS (SELECT 1 FROM romulus.workers WHERE id = $1 AND NOT dead)"
LOCK: Final[LiteralString] = "SELECT key FROM romulus.pool_attempts WHERE key = ANY($1::bigint[]) ORDER BY key FOR UPDATE"
LOCK_FREE: Final[LiteralString] = f"{LOCK} SKIP LOCKED"
THERE: Final[LiteralString] = "SELECT key FROM romulus.pool_attempts WHERE key = ANY($1::bigint[])"
BEAT: Final[LiteralString] = (
    "UPDATE romulus.pool_attempts a SET beat_at = c.now, heartbeat = coalesce(x.details, a.heartbeat) "
    "FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) x (key, fence, details), (SELECT romulus.clock() AS now OFFSET 0) c "
    "WHERE a.key = x.key AND a.fence = x.fence AND a.owner IS NOT NULL"
)
WANTED: Final[LiteralString] = (
    "SELECT a.key FROM romulus.pool_attempts a JOIN unnest($1::bigint[], $2::bigint[]) x (key, fence) ON a.key = x.key "
    "AND a.fence = x.fence WHERE a.owner IS NOT NULL"
)
REPORTED: Final[LiteralString] = (
    "UPDATE romulus.pool_attempts SET state = 'reported', owner = NULL, lease_until = NULL, heartbeat = coalesce($4, heartbeat) "
    "WHERE key = $1 AND fence = $2 AND owner = $3 RETURNING key"
)
KNOWN: Final[LiteralString] = "SELECT 1 FROM romulus.pool_attempts WHERE key = $1 AND fence = $2 AND state = 'reported'"
UNREAD: Final[LiteralString] = (
    "UPDATE romulus.pool_attempts SET state = 'queued', owner = NULL, lease_until = NULL, due = romulus.clock() "
    "WHERE key = $1 AND fence = $2 AND owner = $3 RETURNING key"
)
TELL: Final[LiteralString] = (
    "WITH told AS (INSERT INTO romulus.inbox (run, about, seq, failed, body, info) SELECT run, 'pool', seq, $2::text <> 'returned', "
    "$3::bytea, json_build_array((run << 24) | generation, number, $2::text, fence, encode(heartbeat, 'hex'))::text "
    "FROM romulus.pool_attempts WHERE key = $1 RETURNING run) INSERT INTO romulus.wakes (run) SELECT run FROM told"
)
LATE: Final[LiteralString] = (
    "INSERT INTO romulus.evidence (run, at, fence, kind, owner, detail) SELECT $1::bigint, romulus.clock(), $2, 'late_attempt', $3, $4 "
    "WHERE (SELECT count(*) FROM romulus.evidence WHERE run = $1) < $5"
)
NOTE: Final[LiteralString] = (
    "INSERT INTO romulus.evidence (run, at, fence, kind, owner, detail) SELECT $1::bigint, romulus.clock(), $2, 'unread_attempt', $3, $4 "
    "WHERE (SELECT count(*) FROM romulus.evidence WHERE run = $1 AND kind = 'unread_attempt') < $5 AND NOT EXISTS "
    "(SELECT 1 FROM romulus.evidence WHERE run = $1 AND kind = 'unread_attempt' AND owner = $3 AND detail = $4)"
)
OVER: Final[LiteralString] = (
    "SELECT a.key FROM romulus.pool_attempts a WHERE a.owner IS NOT NULL AND (a.lease_until <= (SELECT romulus.clock()) "
    "OR NOT EXISTS (SELECT 1 FROM romulus.workers w WHERE w.id = a.owner AND NOT w.dead))"
)
ORPHANED: Final[LiteralString] = gone_owners("pool_attempts")
LOCK_OVER: Final[LiteralString] = f"{OVER} ORDER BY a.key LIMIT $1 FOR UPDATE OF a SKIP LOCKED"
LOSE: Final[LiteralString] = (
    "UPDATE romulus.pool_attempts SET state = 'reported', owner = NULL, lease_until = NULL, fence = greatest(fence + 1, romulus.clock()) "
    "WHERE key = $1"
)

# ---- reads
STANDING: Final[LiteralString] = (
    "SELECT seq, pool, step, digest, number, state, owner, due, claimed_at, beat_at FROM romulus.pool_attempts "
    "WHERE run = $1 AND generation = $2 ORDER BY seq"
)
WAITING: Final[LiteralString] = (
    "SELECT q.pool, q.attempts, q.due, q.unread, r.id FROM (SELECT pool, count(*) AS attempts, min(due) AS due, "
    "count(claimed_at) AS unread, min(run) FILTER (WHERE claimed_at IS NOT NULL) AS run FROM romulus.pool_attempts "
    "WHERE namespace = $1 AND due IS NOT NULL GROUP BY pool) q LEFT JOIN romulus.runs r ON r.key = q.run ORDER BY q.pool"
)


# ---- written by the run's own transition -----------------------------------------------------------


def has_pools(t: Transition) -> bool:
    """Return whether *t* queues attempts in pools, or may delete some."""
    return bool(t.pools or t.recalled or (t.pooled and ends(t)))


async def write_pools(session: Session, transitions: Sequence[Transition]) -> None:
    """Delete attempts that were reported or are no longer awaited, then queue new ones; the guards of *transitions* held."""
    recalled = [(*generation_parts(t.generation), seq) for t in transitions for seq in t.recalled]
    if recalled:
        keys = [key for (key,) in await session.rows("pools.lock", LOCK_OWN, *_columns(recalled))]
        await session.rows("pools.recall", DELETE, keys)
    queued = [_queued(t, a) for t in sorted(transitions, key=lambda t: t.run) for a in t.pools]
    if queued:
        await session.rows("pools.queue", QUEUE, *_columns(queued))


async def leave_pools(session: Session, generations: Sequence[int]) -> None:
    """Delete what generations that end have in pools, and what was told of it."""
    if generations:
        left = [generation_parts(key) for key in generations]
        keys = [key for (key,) in await session.rows("pools.left", LOCK_LEFT, *_columns(left))]
        await session.rows("pools.leave", DELETE, keys)
        await session.rows("pools.forget", FORGET, [run for run, _ in left])


def _queued(t: Transition, a: Any) -> Row:
    return (
        *generation_parts(t.generation), a.seq, a.pool, a.step, a.digest, a.arguments, a.number, a.timeout, a.heartbeat_timeout,
        a.heartbeat, a.fence, a.due,
    )  # fmt: skip


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


# ---- worked by a pool's workers ---------------------------------------------------------------------


async def renew_leases(session: Session, owner: str, lease: int, attempts: Sequence[int]) -> None:
    """Extend the leases of the *attempts* that *owner* works."""
    if attempts:
        await session.rows("pools.renew", RENEW, owner, lease, list(attempts))


async def look(session: Session, namespace: str, pools: Sequence[str], steps: Sequence[str], aside: Sequence[int]) -> Look:
    """Return what is due in which of *pools* when, but for the attempts *aside*."""
    rows = await session.rows("pools.next", NEXT, namespace, list(pools), list(steps), list(aside))
    return Look([(pool, due) for pool, due, _ in rows if due is not None], rows[0][2] if rows else 0)


async def take(
    session: Session, owner: str, namespace: str, pools: Sequence[str], steps: Sequence[str], limit: int, lease: int, aside: Sequence[int]
) -> TakenPool:  # fmt: skip
    """Claim due attempts inside the open transaction; see `Store.take_pool`."""
    if not await session.value("pools.live", LIVE, owner):
        return TakenPool([], None)  # marked dead meanwhile: its claims would be void at once
    seen = await look(session, namespace, pools, steps, aside)
    keys: list[int] = []
    for pool, due in seen.due:
        if due <= seen.now and len(keys) < limit:
            given = (namespace, pool, list(steps), list(aside), seen.now, limit - len(keys))
            keys += [key for (key,) in await session.rows("pools.due", LOCK_DUE, *given)]
    if keys:
        await session.rows("pools.take", TAKE, keys, owner, seen.now, lease)
    taken = [PoolAttempt(*row) for row in await session.rows("pools.taken", TAKEN, keys)] if keys else []
    return TakenPool(taken, (await look(session, namespace, pools, steps, aside)).next)


async def beat(session: Session, beats: Sequence[PoolBeat], *, free: bool = False) -> list[bool]:
    """Store signs of life; see `Store.beat_pool`. *free*: of attempts that nobody else has locked."""
    asked = [b.key for b in beats if b.beaten]
    locked = {key for (key,) in await session.rows("pools.lock_beaten", LOCK_FREE if free else LOCK, asked)} if asked else set[int]()
    beaten = [(b.key, b.fence, b.details) for b in beats if b.key in locked]
    if beaten:
        await session.rows("pools.beat", BEAT, *_columns(beaten))
    wanted = {key for (key,) in await session.rows("pools.wanted", WANTED, [b.key for b in beats], [b.fence for b in beats])}
    return [b.key in wanted for b in beats]


async def report(session: Session, reports: Sequence[PoolReport], *, free: bool = False) -> list[bool | None]:
    """Put how attempts ended into their runs' inboxes; see `Store.report_pool`. *free*: of attempts that nobody else has locked."""
    keys = {each.key for each in reports}
    kept = keys - {key for (key,) in await session.rows("pools.lock_reported", LOCK_FREE if free else LOCK, list(keys))}
    if kept:  # deleted, or somebody else has it
        kept = {key for (key,) in await session.rows("pools.there", THERE, list(kept))}
    return [None if each.key in kept else await _report(session, each) for each in reports]


async def _report(session: Session, given: PoolReport) -> bool:
    if given.end is PoolEnd.UNREAD:
        return await _give_back(session, given)
    if await session.rows("pools.report", REPORTED, given.key, given.fence, given.owner, given.heartbeat):
        await session.rows("pools.tell", TELL, given.key, given.end.value, given.body)
        return True
    if await session.rows("pools.known", KNOWN, given.key, given.fence):
        return True
    await session.rows("pools.late", LATE, given.run, given.fence, given.owner, given.detail, EVIDENCE_MAX)
    return False


async def _give_back(session: Session, given: PoolReport) -> bool:
    if not await session.rows("pools.unread", UNREAD, given.key, given.fence, given.owner):
        return False
    await session.rows("pools.note", NOTE, given.run, given.fence, given.owner, given.detail, UNREAD_MAX)
    return True


async def orphaned(session: Session) -> list[str]:
    """Return workers that are gone and claim attempts."""
    return [owner for (owner,) in await session.rows("pools.orphaned", ORPHANED)]


async def some_over(session: Session) -> list[int]:
    """Return an attempt whose claim is over, for whatever reason, if there is one: all that are claimed are looked at."""
    return [key for (key,) in await session.rows("pools.over", f"{OVER} LIMIT 1")]


async def lose(session: Session, limit: int) -> int:
    """Give attempts up whose claim is over, inside the open transaction; see `Store.lose_pool`."""
    keys = [key for (key,) in await session.rows("pools.lock_over", LOCK_OVER, limit)]
    for key in keys:
        await session.rows("pools.lose", LOSE, key)
        await session.rows("pools.tell", TELL, key, PoolEnd.LOST.value, b"")
    return len(keys)


# ---- reads -----------------------------------------------------------------------------------------


async def of_generation(session: Session, generation: int) -> list[PoolStanding]:
    """Return the attempts that *generation* has in pools, in command order."""
    return [PoolStanding(*row) for row in await session.rows("pools.standing", STANDING, *generation_parts(generation))]


async def waiting(session: Session, namespace: str) -> list[QueuedPool]:
    """Return the pools in which attempts wait to be claimed."""
    return [QueuedPool(*row) for row in await session.rows("pools.waiting", WAITING, namespace)]
