"""Attempts in pools: queued and deleted by their run's transition, claimed, kept and reported by whichever worker serves the pool."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.pools import PoolAttempt, PoolBeat, PoolEnd, PoolReport, PoolStanding, TakenPool
from romulus.core.transition import Transition
from romulus.store.contract import UNREAD_MAX, Evidence, QueuedPool

from .bulk import Bulk
from .connection import Row
from .evidence import keep
from .rows import gathered, read_all
from .session import Session

Fitting: TypeAlias = tuple[str, str, str, str]  # namespace, pool, steps (JSON), keys that are left to others (JSON)

QUEUED: Final = Bulk(
    "pools.queue",
    "INSERT INTO pool_attempts (namespace, run, generation, seq, pool, step, digest, arguments, number, timeout, heartbeat_timeout, "
    "heartbeat, state, fence, due) SELECT r.namespace, t.column1, t.column2, t.column3, t.column4, t.column5, t.column6, t.column7, "
    "t.column8, t.column9, t.column10, t.column11, 'queued', t.column12, t.column13 FROM (",
    13,
    ") AS t CROSS JOIN runs r ON r.key = t.column1",
)
RECALL: Final = (
    "DELETE FROM pool_attempts WHERE key IN (SELECT a.key FROM json_each(?) t CROSS JOIN pool_attempts a "
    "ON a.generation = t.value ->> 0 AND a.seq = t.value ->> 1) RETURNING state"
)
LEAVE: Final = "DELETE FROM pool_attempts WHERE generation IN (SELECT value FROM json_each(?)) RETURNING state"
FORGET: Final = (
    "DELETE FROM inbox WHERE about = 'pool' AND run IN (SELECT g.run FROM json_each(?) t CROSS JOIN generations g ON g.key = t.value)"
)
RENEW: Final = "UPDATE pool_attempts SET lease_until = ?2 WHERE owner = ?1 AND key IN (SELECT value FROM json_each(?3))"
# Bindings: 1 namespace, 2 pool, 3 steps (JSON), 4 keys that are left to others (JSON).
# Each pool is asked for on its own, so that the index gives its rows in order.
FITTING: Final[LiteralString] = (
    "pool_attempts INDEXED BY pool_attempts_due WHERE namespace = ?1 AND pool = ?2 AND due IS NOT NULL "
    "AND step IN (SELECT value FROM json_each(?3)) AND key NOT IN (SELECT value FROM json_each(?4))"
)
NEXT: Final[LiteralString] = f"SELECT due FROM {FITTING} ORDER BY due LIMIT 1"
TAKE: Final[LiteralString] = (
    "UPDATE pool_attempts SET state = 'claimed', owner = ?5, fence = max(fence + 1, ?6), lease_until = ?7, due = NULL, claimed_at = ?6, "
    f"beat_at = NULL WHERE key IN (SELECT key FROM {FITTING} AND due <= ?6 ORDER BY due LIMIT ?8) RETURNING key"
)
ATTEMPT: Final[LiteralString] = (
    "a.key, a.run, a.generation, r.id, a.namespace, r.workflow, r.version, r.generation, r.depth, "
    "coalesce(g.started_at, r.started_at, r.created_at), g.seeds, a.seq, a.pool, a.step, a.digest, hex(a.arguments), a.number, a.timeout, "
    "a.heartbeat_timeout, hex(a.heartbeat), a.fence"
)
TAKEN: Final = gathered(
    ATTEMPT,
    "FROM json_each(?) t CROSS JOIN pool_attempts a ON a.key = t.value CROSS JOIN runs r ON r.key = a.run "
    "CROSS JOIN generations g ON g.key = a.generation",
)
STANDING: Final = gathered(
    "seq, pool, step, digest, number, state, owner, due, claimed_at, beat_at",
    "FROM (SELECT * FROM pool_attempts WHERE generation = ? ORDER BY seq)",
)
WAITING: Final = gathered(
    "q.pool, q.attempts, q.due, q.unread, r.id",
    "FROM (SELECT pool, count(*) AS attempts, min(due) AS due, count(claimed_at) AS unread, "
    "min(run) FILTER (WHERE claimed_at IS NOT NULL) AS run FROM pool_attempts WHERE namespace = ? AND due IS NOT NULL "
    "GROUP BY pool ORDER BY pool) q LEFT JOIN runs r ON r.key = q.run",
)
BEAT: Final = (
    "UPDATE pool_attempts SET beat_at = ?3, heartbeat = coalesce(?4, heartbeat) WHERE key = ?1 AND fence = ?2 AND owner IS NOT NULL"
)
WANTED: Final = "SELECT 1 FROM pool_attempts WHERE key = ?1 AND fence = ?2 AND owner IS NOT NULL"
REPORTED: Final = (
    "UPDATE pool_attempts SET state = 'reported', owner = NULL, lease_until = NULL, heartbeat = coalesce(?4, heartbeat) "
    "WHERE key = ?1 AND fence = ?2 AND owner = ?3"
)
KNOWN: Final = "SELECT 1 FROM pool_attempts WHERE key = ?1 AND fence = ?2 AND state = 'reported'"
UNREAD: Final = (
    "UPDATE pool_attempts SET state = 'queued', owner = NULL, lease_until = NULL, due = ?4 WHERE key = ?1 AND fence = ?2 AND owner = ?3"
)
NOTE: Final = (
    "INSERT INTO evidence (run, at, kind, owner, fence, detail) SELECT ?1, ?2, 'unread_attempt', ?3, ?4, ?5 "
    "WHERE (SELECT count(*) FROM evidence WHERE run = ?1 AND kind = 'unread_attempt') < ?6 AND NOT EXISTS "
    "(SELECT 1 FROM evidence WHERE run = ?1 AND kind = 'unread_attempt' AND owner = ?3 AND detail = ?5)"
)
TELL: Final = (
    "INSERT INTO inbox (run, about, seq, failed, body, info) SELECT run, 'pool', seq, ?3, ?4, "
    "json_array(generation, number, ?2, fence, hex(heartbeat)) FROM pool_attempts WHERE key = ?1"
)
WAKE: Final = "INSERT INTO wakes (run) SELECT run FROM pool_attempts WHERE key = ?"
# Bindings: 1 the machine's monotonic clock.
OVER: Final[LiteralString] = (
    "SELECT key FROM pool_attempts WHERE owner IS NOT NULL AND (lease_until <= ?1 OR owner NOT IN (SELECT id FROM workers WHERE NOT dead))"
)
LOSE: Final = "UPDATE pool_attempts SET state = 'reported', owner = NULL, lease_until = NULL, fence = max(fence + 1, ?2) WHERE key = ?1"


# ---- written by the run's own transition -----------------------------------------------------------


def write_pools(session: Session, transitions: Sequence[Transition], now: int) -> None:
    """Delete attempts that were reported or are no longer awaited, then queue new ones."""
    recalled = [(t.generation, seq) for t in transitions for seq in t.recalled]
    if recalled:
        session.run("pools.recall", RECALL, (json.dumps(recalled),))
    QUEUED.write(session, [_queued(t, a, now) for t in transitions for a in t.pools])


def leave_pools(session: Session, generations: Sequence[int]) -> None:
    """Delete what generations that end have in pools, and what was told of it."""
    if generations:
        given = (json.dumps(generations),)
        session.run("pools.leave", LEAVE, given)
        session.run("pools.forget", FORGET, given)


def _queued(t: Transition, a: Any, now: int) -> Row:
    return (
        t.run, t.generation, a.seq, a.pool, a.step, a.digest, a.arguments, a.number, a.timeout, a.heartbeat_timeout, a.heartbeat, a.fence,
        a.due or now,
    )  # fmt: skip


# ---- worked by a pool's workers ---------------------------------------------------------------------


def renew_leases(session: Session, owner: str, until: int, attempts: Sequence[int]) -> None:
    """Extend the leases of the *attempts* that *owner* works, beside its own."""
    if attempts:
        session.alone("pools.renew", RENEW, (owner, until, json.dumps(attempts)))


def take(
    session: Session, owner: str, namespace: str, pools: Sequence[str], steps: Sequence[str], limit: int, lease: int, aside: Sequence[int]
) -> TakenPool:  # fmt: skip
    """Claim due attempts; see `Store.take_pool`. No lock is taken while nothing is due."""
    fitting = [(namespace, pool, json.dumps(list(steps)), json.dumps(list(aside))) for pool in pools]
    due = session.read(lambda s: _next(s, fitting))
    if not due or due[0][0] > session.clock.now():
        return TakenPool([], due[0][0] if due else None)
    return session.write(lambda s, now: _take(s, owner, fitting, limit, lease, now))


def _take(session: Session, owner: str, fitting: Sequence[Fitting], limit: int, lease: int, now: int) -> TakenPool:
    if not session.run("pools.live", "SELECT 1 FROM workers WHERE id = ? AND NOT dead", (owner,)):
        return TakenPool([], None)  # marked dead meanwhile: its claims would be void at once
    until = session.host.monotonic() + lease
    keys: list[int] = []
    for _, pool in _next(session, fitting):
        keys += [key for (key,) in session.run("pools.take", TAKE, (*pool, owner, now, until, limit - len(keys)))]
    rows = read_all(session, "pools.taken", TAKEN, (json.dumps(sorted(keys)),), attempt_of)
    left = _next(session, fitting)
    return TakenPool(rows, left[0][0] if left else None)


def _next(session: Session, fitting: Sequence[Fitting]) -> list[tuple[int, Fitting]]:
    """Return when the next attempt of each pool is due, the pool with the earliest first; those without any are left out."""
    found = [(session.value("pools.next", NEXT, pool), pool) for pool in fitting]
    return sorted((due, pool) for due, pool in found if due is not None)


def beat(session: Session, beats: Sequence[PoolBeat]) -> list[bool]:
    """Store signs of life; see `Store.beat_pool`. No lock is taken where none of them is new."""
    if not any(each.beaten for each in beats):
        return session.read(lambda s: [bool(s.run("pools.wanted", WANTED, (b.key, b.fence))) for b in beats])
    return session.write(lambda s, now: [_beat(s, b, now) for b in beats])


def _beat(session: Session, given: PoolBeat, now: int) -> bool:
    if not given.beaten:
        return bool(session.run("pools.wanted", WANTED, (given.key, given.fence)))
    return session.count("pools.beat", BEAT, (given.key, given.fence, now, given.details)) > 0


def report(session: Session, reports: Sequence[PoolReport], now: int) -> list[bool]:
    """Put how attempts ended into their runs' inboxes; see `Store.report_pool`."""
    return [_report(session, each, now) for each in reports]


def _report(session: Session, given: PoolReport, now: int) -> bool:
    if given.end is PoolEnd.UNREAD:
        return _give_back(session, given, now)
    if session.count("pools.report", REPORTED, (given.key, given.fence, given.owner, given.heartbeat)):
        _tell(session, given.key, given.end, given.body)
        return True
    if session.run("pools.known", KNOWN, (given.key, given.fence)):
        return True
    keep(session, given.run, Evidence(now, "late_attempt", given.owner, given.fence, given.detail))
    return False


def _give_back(session: Session, given: PoolReport, now: int) -> bool:
    if not session.count("pools.unread", UNREAD, (given.key, given.fence, given.owner, now)):
        return False
    session.run("pools.note", NOTE, (given.run, now, given.owner, given.fence, given.detail, UNREAD_MAX))
    return True


def lose(session: Session, limit: int) -> int:
    """Give attempts up whose claim is over; see `Store.lose_pool`. No lock is taken while there are none."""
    if not session.read(lambda s: s.run("pools.over", OVER + " LIMIT 1", (s.host.monotonic(),))):
        return 0
    return session.write(lambda s, now: lose_now(s, limit, now))


def lose_now(session: Session, limit: int, now: int) -> int:
    """Give attempts up whose claim is over, inside the open transaction."""
    keys = [key for (key,) in session.run("pools.over", OVER + " LIMIT ?2", (session.host.monotonic(), limit))]
    for key in keys:
        session.run("pools.lose", LOSE, (key, now))
        _tell(session, key, "lost", b"")
    return len(keys)


def _tell(session: Session, key: int, end: str, body: bytes) -> None:
    session.run("pools.tell", TELL, (key, str(end), end != "returned", body))
    session.run("pools.wake", WAKE, (key,))


# ---- reads -----------------------------------------------------------------------------------------


def of_generation(session: Session, generation: int) -> list[PoolStanding]:
    """Return the attempts that *generation* has in pools, in command order."""
    return read_all(session, "pools.standing", STANDING, (generation,), lambda row: PoolStanding(*row))


def waiting(session: Session, namespace: str) -> list[QueuedPool]:
    """Return the pools in which attempts wait to be claimed."""
    return read_all(session, "pools.waiting", WAITING, (namespace,), lambda row: QueuedPool(*row))


def attempt_of(row: Sequence[Any]) -> PoolAttempt:
    """Return the attempt of a row of `ATTEMPT`."""
    values = list(row)
    values[15], values[19] = bytes.fromhex(values[15]), bytes.fromhex(values[19])
    return PoolAttempt(*values)
