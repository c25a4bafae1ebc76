"""`Store.restore`: a database that was put back from a backup begins a new incarnation, and nothing of before can write to it."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.machine import Change, RunStatus, after
from romulus.core.operations import OperationRow
from romulus.core.ports import Host
from romulus.core.record import Doubt, Run
from romulus.core.restoring import FENCE_GAP, Restored, awaited, doubted, why_held

from . import migrate, pools
from .driver import reconnect
from .faults import unavailable
from .operations import ADD_NOTES, FROM, OPERATION, operation_of
from .place import Place
from .pool import DRIVER_ERRORS, Pool
from .reporting import become
from .rows import RUN, columns, run_of
from .session import OwnSession

COMMAND_S: Final = 24 * 3600.0  # every live run is written: that may take its time
LOCK_MS: Final = 60_000
POOL_ATTEMPTS_MAX: Final = 1 << 31

LOCK: Final[LiteralString] = "LOCK TABLE romulus.workers, romulus.runs, romulus.operations, romulus.pool_attempts IN EXCLUSIVE MODE"
# The newest that the backup has of anything: what was lost was committed later.
NEWEST: Final[LiteralString] = (
    "SELECT greatest((SELECT max(updated_at) FROM romulus.runs), (SELECT max(renewed_at) FROM romulus.workers), "
    "(SELECT max(received_at) FROM romulus.events), (SELECT max(updated_at) FROM romulus.operations), 0), romulus.clock()"
)
INCARNATION: Final[LiteralString] = "UPDATE romulus.meta SET value = $1 WHERE name = 'incarnation'"
BURY: Final[LiteralString] = "UPDATE romulus.workers SET dead = true WHERE NOT dead"
# One that starts later than now cannot have started before.
LIVE: Final[LiteralString] = "r.finished_at IS NULL AND (r.started_at IS NOT NULL OR r.owner IS NOT NULL OR r.wake_at <= $1)"
DOUBT: Final[LiteralString] = (
    f"INSERT INTO romulus.doubts (run, since, restored_at) SELECT r.key, $2::bigint, $1 FROM romulus.runs r WHERE {LIVE} "
    "ON CONFLICT (run) DO UPDATE SET since = least(doubts.since, excluded.since), restored_at = excluded.restored_at"
)
MAY_HAVE: Final[LiteralString] = (
    "WITH known AS MATERIALIZED (SELECT namespace, workflow FROM romulus.operating UNION "
    "SELECT o.namespace, w.workflow FROM romulus.operations o JOIN romulus.runs w ON w.key = o.run) "
    f"SELECT r.key FROM romulus.runs r WHERE {LIVE} AND r.status <> $2 AND EXISTS "
    "(SELECT 1 FROM known k WHERE k.namespace = r.namespace AND k.workflow = r.workflow) ORDER BY r.key"
)
VOID: Final[LiteralString] = (
    "UPDATE romulus.runs r SET fence = greatest(r.fence, $1) + $2, revision = r.revision + 1, owner = NULL, status = $3, wake_at = $1, "
    "lane = CASE r.priority WHEN 0 THEN 0 ELSE 1 END, queue_at = $1 - r.priority::bigint * 10000000, "
    "queued_by = romulus.xid(), updated_at = $1 "
    "WHERE r.owner IS NOT NULL RETURNING r.key"
)
VOID_OTHERS: Final[LiteralString] = (
    "UPDATE romulus.runs r SET fence = greatest(r.fence, $1) + $2, revision = r.revision + 1, queued_by = romulus.xid() "
    "WHERE r.finished_at IS NULL AND r.key <> ALL($3::bigint[])"
)
VOID_POOLS: Final[LiteralString] = "UPDATE romulus.pool_attempts SET fence = greatest(fence, $1) + $2"
OPEN: Final[LiteralString] = f"SELECT {OPERATION} {FROM} WHERE o.ended_at IS NULL ORDER BY o.key"
DOUBTED: Final[LiteralString] = "INSERT INTO romulus.doubted (operation) SELECT * FROM unnest($1::bigint[]) ON CONFLICT DO NOTHING"
HOLD: Final[LiteralString] = (
    "UPDATE romulus.runs r SET status = $4, hold_kind = x.kind, hold_reason = x.reason, wake_at = NULL, lane = 0, queue_at = NULL, "
    "updated_at = $5 FROM unnest($1::bigint[], $2::text[], $3::text[]) x (key, kind, reason) WHERE r.key = x.key AND r.status <> $4"
)
HELD: Final[LiteralString] = f"SELECT {RUN} FROM romulus.runs r WHERE r.key = ANY($1::bigint[]) ORDER BY r.key"


async def restore(place: Place, host: Host, pooled: bool | None, since: int | None) -> Restored:
    """Begin a new incarnation in one transaction, on a connection of its own; see `Store.restore`."""
    pool = Pool(place, host, 1)
    pool.pooled, pool.lock_ms = pooled, LOCK_MS
    link = await reconnect(place, pooled=pooled, command_s=COMMAND_S, lock_ms=LOCK_MS, name="romulus restore")
    session = OwnSession(link.connection, host)
    try:
        await pool.begin(session)
        restored = await _restore(session, since)
        await pool.commit(session)
    except CommitUnknown as error:  # once more does no harm: it is a restore of what stands there then
        raise StoreUnavailable(str(error)) from error
    except DRIVER_ERRORS as error:
        raise unavailable(error, place.shown) or error from error
    finally:
        link.connection.terminate()
    return restored


async def trust(session: OwnSession) -> int:
    """Take the doubt from every run; see `Store.trust`."""
    return len(await session.rows("restore.trust", "DELETE FROM romulus.doubts RETURNING run"))


async def _restore(session: OwnSession, since: int | None) -> Restored:
    await session.rows("restore.migrator", migrate.LOCK)
    await session.plain("restore.lock", LOCK)
    ((newest, now),) = await session.rows("restore.newest", NEWEST)
    doubt = Doubt(newest if since is None else since, max(now, newest))
    incarnation = f"{session.host.random_bits(128):032x}"
    await session.rows("restore.incarnation", INCARNATION, incarnation)
    may_have = [key for (key,) in await session.rows("restore.may_have", MAY_HAVE, doubt.restored_at, RunStatus.HELD.value)]
    await session.rows("restore.doubt", DOUBT, doubt.restored_at, doubt.since)
    freed = await _void(session, doubt)
    operations = await _open_operations(session, doubt)
    held = await _hold(session, operations, may_have, doubt)
    return Restored(incarnation, doubt, len(freed - {run.key for run in held}), held, operations)


async def _void(session: OwnSession, doubt: Doubt) -> set[int]:
    """Void every claim: of workers, on runs, and on attempts in pools. Return the runs that were claimed."""
    await session.rows("restore.bury", BURY)
    free = after(RunStatus.RUNNING, Change.FREE)
    freed = {key for (key,) in await session.rows("restore.void", VOID, doubt.restored_at, FENCE_GAP, free.value)}
    await session.rows("restore.void_others", VOID_OTHERS, doubt.restored_at, FENCE_GAP, list(freed))
    await session.rows("restore.void_pools", VOID_POOLS, doubt.restored_at, FENCE_GAP)
    await pools.lose(session, POOL_ATTEMPTS_MAX)
    return freed


async def _open_operations(session: OwnSession, doubt: Doubt) -> list[OperationRow]:
    rows = [doubted(operation_of(row), doubt) for row in await session.rows("restore.operations", OPEN)]
    await become(session, rows)
    if rows:
        notes = [(row.key, doubt.restored_at, "restored", "", row.state.value, "{}", b"") for row in rows]
        await session.rows("restore.notes", ADD_NOTES, *columns(notes))
    await session.rows("restore.doubted", DOUBTED, [row.key for row in rows if row.doubted])
    return rows


async def _hold(session: OwnSession, operations: Sequence[OperationRow], may_have: Sequence[int], doubt: Doubt) -> list[Run]:
    known = awaited(operations)
    keys = sorted({*known, *may_have})
    held = after(RunStatus.PENDING, Change.RESTORE)
    rows: list[tuple[Any, ...]] = [(key, *why_held(known.get(key, ()), doubt)) for key in keys]
    if rows:
        columns = [[key for key, _, _ in rows], [kind.value for _, kind, _ in rows], [reason for _, _, reason in rows]]
        await session.rows("restore.hold", HOLD, *columns, held.value, doubt.restored_at)
    return [run_of(row) for row in await session.rows("restore.held", HELD, keys)]
