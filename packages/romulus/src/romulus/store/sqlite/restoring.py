"""`Store.restore`: a file that was put back from a backup begins a new incarnation, and nothing of before can write to it."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString

from romulus.core.machine import Change, RunStatus, after
from romulus.core.operations import OperationRow
from romulus.core.record import Doubt, Run
from romulus.core.restoring import FENCE_GAP, Restored, awaited, doubted, why_held

from .operations import ADD_NOTE, OPERATION, become, operation_of
from .pools import lose_now
from .rows import RUN, gathered, read_all, run_of
from .session import Session

POOL_ATTEMPTS_MAX: Final = 1 << 31
# The newest that the backup has of anything: what was lost was committed later.
NEWEST: Final = (
    "SELECT max(coalesce((SELECT max(updated_at) FROM runs), 0), coalesce((SELECT max(renewed_at) FROM workers), 0), "
    "coalesce((SELECT max(received_at) FROM events), 0), coalesce((SELECT max(updated_at) FROM operations), 0))"
)
# One that starts later than now cannot have started before.
LIVE: Final[LiteralString] = "r.finished_at IS NULL AND (r.started_at IS NOT NULL OR r.owner IS NOT NULL OR r.wake_at <= ?1)"
DOUBT: Final[LiteralString] = (
    f"INSERT INTO doubts (run, since, restored_at) SELECT r.key, ?2, ?1 FROM runs r WHERE {LIVE} "
    "ON CONFLICT (run) DO UPDATE SET since = min(since, excluded.since), restored_at = excluded.restored_at"
)
MAY_HAVE: Final[LiteralString] = (
    f"SELECT r.key FROM runs r WHERE {LIVE} AND r.status <> ?2 AND (r.namespace, r.workflow) IN (SELECT namespace, workflow FROM operating "
    "UNION SELECT o.namespace, w.workflow FROM operations o CROSS JOIN runs w ON w.key = o.run) ORDER BY r.key"
)
CLAIMED: Final = "SELECT key FROM runs WHERE owner IS NOT NULL"
VOID: Final = (
    "UPDATE runs SET owner = NULL, status = ?2, wake_at = ?1, lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = ?1 - priority * 10000000, updated_at = ?1 WHERE owner IS NOT NULL"
)
RAISE: Final = "UPDATE runs SET fence = max(fence, ?) + ?, revision = revision + 1 WHERE finished_at IS NULL"
VOID_POOLS: Final = "UPDATE pool_attempts SET fence = max(fence, ?) + ?"
OPEN: Final = gathered(
    OPERATION, "FROM (SELECT * FROM operations WHERE ended_at IS NULL ORDER BY key) o CROSS JOIN runs r ON r.key = o.run"
)
HOLD: Final = (
    "UPDATE runs SET status = ?4, hold_kind = ?2, hold_reason = ?3, wake_at = NULL, lane = 0, queue_at = NULL, updated_at = ?5 "
    "WHERE key = ?1 AND status <> ?4"
)
HELD: Final = gathered(RUN, "FROM (SELECT * FROM runs WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key) r")


def restore(session: Session, since: int | None, now: int) -> Restored:
    """Begin a new incarnation inside the open transaction; see `Store.restore`."""
    newest: int = session.value("restore.newest", NEWEST)
    doubt = Doubt(newest if since is None else since, max(now, newest))
    incarnation = f"{session.host.random_bits(128):032x}"
    session.run("restore.incarnation", "UPDATE meta SET value = ? WHERE name = 'incarnation'", (incarnation,))
    may_have = [key for (key,) in session.run("restore.may_have", MAY_HAVE, (doubt.restored_at, RunStatus.HELD))]
    session.run("restore.doubt", DOUBT, (doubt.restored_at, doubt.since))
    freed = _void(session, doubt, now)
    operations = _open_operations(session, doubt)
    held = _hold(session, operations, may_have, doubt)
    return Restored(incarnation, doubt, len(freed - {run.key for run in held}), held, operations)


def trust(session: Session) -> int:
    """Take the doubt from every run; see `Store.trust`."""
    return session.count("restore.trust", "DELETE FROM doubts")


def _void(session: Session, doubt: Doubt, now: int) -> set[int]:
    """Void every claim: of workers, on runs, and on attempts in pools. Return the runs that were claimed."""
    session.run("restore.bury", "UPDATE workers SET dead = 1 WHERE NOT dead")
    claimed = {key for (key,) in session.run("restore.claimed", CLAIMED)}
    session.run("restore.void", VOID, (doubt.restored_at, after(RunStatus.RUNNING, Change.FREE)))
    session.run("restore.raise", RAISE, (doubt.restored_at, FENCE_GAP))
    session.run("restore.void_pools", VOID_POOLS, (doubt.restored_at, FENCE_GAP))
    lose_now(session, POOL_ATTEMPTS_MAX, now)
    return claimed


def _open_operations(session: Session, doubt: Doubt) -> list[OperationRow]:
    rows = [doubted(row, doubt) for row in read_all(session, "restore.operations", OPEN, (), operation_of)]
    for row in rows:
        become(session, row)
        session.run("restore.note", ADD_NOTE, (row.key, doubt.restored_at, "restored", "", row.state, "{}", b""))
        if row.doubted:
            session.run("restore.doubted", "INSERT OR IGNORE INTO doubted (operation) VALUES (?)", (row.key,))
    return rows


def _hold(session: Session, operations: Sequence[OperationRow], may_have: Sequence[int], doubt: Doubt) -> list[Run]:
    known = awaited(operations)
    keys = sorted({*known, *may_have})
    held = after(RunStatus.PENDING, Change.RESTORE)
    for key in keys:
        session.run("restore.hold", HOLD, (key, *why_held(known.get(key, ()), doubt), held, doubt.restored_at))
    return read_all(session, "restore.held", HELD, (json.dumps(keys),), run_of)
