"""Workers: registration, leases on the store's clock, dead marks, and the runs freed from the dead."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.ports import Host, ProcessIdentity
from romulus.core.record import WorkerRow
from romulus.store.contract import Freed

from .owners import gone_owners
from .pools import renew_leases
from .rows import WORKER, served, worker_of
from .session import Session

Serve: TypeAlias = tuple[str, str, str]

KEPT_DEAD: Final = 24 * 3600 * 1_000_000  # µs a dead worker's row stays in listings
REGISTER: Final[LiteralString] = (
    f"INSERT INTO romulus.workers ({WORKER}) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now, now, now + $14, false, $13 "
    "FROM (SELECT romulus.clock() AS now OFFSET 0) c ON CONFLICT (id) DO NOTHING"
)
OPERATING: Final[LiteralString] = (
    "INSERT INTO romulus.operating (namespace, workflow, version) SELECT $1::text, x.* FROM unnest($2::text[], $3::text[]) x "
    "ORDER BY 2, 3 ON CONFLICT DO NOTHING"
)
RENEW: Final[LiteralString] = (
    "UPDATE romulus.workers SET lease_until = c.now + $2, renewed_at = c.now FROM (SELECT romulus.clock() AS now OFFSET 0) c "
    "WHERE id = $1 AND NOT dead RETURNING id"
)
LIST: Final[LiteralString] = f"SELECT {WORKER}, lease_until <= (SELECT romulus.clock()) FROM romulus.workers"
MARK: Final[LiteralString] = "UPDATE romulus.workers SET dead = true WHERE id = $1 AND NOT dead AND lease_until = $2 RETURNING id"
LOST: Final[LiteralString] = gone_owners("runs")
LOCK_LOST: Final[LiteralString] = (
    "SELECT key FROM romulus.runs WHERE owner = ANY($1::text[]) ORDER BY owner LIMIT $2 FOR UPDATE SKIP LOCKED"
)
# At once, or after a pause that doubles with each loss beyond the first few.
DUE: Final[LiteralString] = "(c.now + CASE WHEN r.losses + 1 >= $3 THEN $4::bigint << least(r.losses + 1 - $3, 6) ELSE 0 END)"
FREE: Final[LiteralString] = (
    "UPDATE romulus.runs r SET owner = NULL, fence = greatest(r.fence + 1, c.now), losses = r.losses + 1, status = $2, updated_at = c.now, "
    f"wake_at = {DUE}, lane = CASE WHEN r.priority = 0 THEN 0 WHEN {DUE} <= c.now THEN 1 ELSE 2 END, "
    f"queue_at = {DUE} - CASE WHEN {DUE} <= c.now THEN r.priority::bigint * 10000000 ELSE 0 END, queued_by = romulus.xid() "
    "FROM (SELECT romulus.clock() AS now OFFSET 0) c WHERE r.key = ANY($1::bigint[])"
)
FORGET: Final[LiteralString] = (
    "DELETE FROM romulus.workers w WHERE w.dead AND w.renewed_at < (SELECT romulus.clock()) - $1::bigint "
    "AND NOT EXISTS (SELECT 1 FROM romulus.runs r WHERE r.owner = w.id)"
)
HELD: Final[LiteralString] = (
    "SELECT s.n::integer FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS s (workflow, version, digest, n) "
    "WHERE EXISTS (SELECT 1 FROM romulus.runs r WHERE r.namespace = $1 AND r.workflow = s.workflow AND r.version = s.version "
    "AND r.hold_kind <> '' AND r.hold_kind = 'code' AND position(' ' || s.digest || ' ' IN ' ' || r.excluded || ' ') = 0)"
)
REOPEN: Final[LiteralString] = (
    "UPDATE romulus.runs r SET status = $5, hold_kind = '', hold_reason = '', wake_at = c.now, "
    "lane = CASE r.priority WHEN 0 THEN 0 ELSE 1 END, queue_at = c.now - r.priority::bigint * 10000000, "
    "queued_by = romulus.xid(), updated_at = c.now "
    "FROM (SELECT romulus.clock() AS now OFFSET 0) c WHERE r.key IN (SELECT key FROM romulus.runs WHERE namespace = $1 AND workflow = $2 "
    "AND version = $3 AND hold_kind <> '' AND hold_kind = 'code' AND position(' ' || $4 || ' ' IN ' ' || excluded || ' ') = 0 "
    "ORDER BY key FOR UPDATE SKIP LOCKED) RETURNING r.key"
)


async def register(session: Session, worker: WorkerRow, lease: int) -> None:
    """Insert the worker's row with a lease of *lease* µs; again is harmless."""
    await session.rows("worker.register", REGISTER, *astuple(worker)[:12], worker.stopping, lease)
    if worker.operating:
        names, versions = ([each[n] for each in worker.operating] for n in range(2))
        await session.rows("worker.operating", OPERATING, worker.namespace, names, versions)


async def renew(session: Session, worker_id: str, lease: int, attempts: Sequence[int]) -> bool:
    """Extend the worker's lease by *lease* µs from now, and those of its *attempts*; False: it was marked dead."""
    if not await session.rows("lease.renew", RENEW, worker_id, lease):
        return False
    await renew_leases(session, worker_id, lease, attempts)
    return True


async def deregister(session: Session, worker_id: str) -> None:
    """Remove the worker's row."""
    await session.rows("worker.deregister", "DELETE FROM romulus.workers WHERE id = $1", worker_id)


async def mark_stopping(session: Session, worker_id: str) -> None:
    """Show that the worker claims nothing any more."""
    await session.rows("worker.stopping", "UPDATE romulus.workers SET stopping = true WHERE id = $1", worker_id)


async def mark_dead(session: Session, worker_id: str) -> None:
    """Mark a worker dead now."""
    await session.rows("worker.dead", "UPDATE romulus.workers SET dead = true WHERE id = $1", worker_id)


async def listed(session: Session, namespace: str) -> list[WorkerRow]:
    """Return the workers of *namespace* with their status as of now."""
    rows = await session.rows("worker.list", f"{LIST} WHERE namespace = $1 ORDER BY started_at, id", namespace)
    found: list[WorkerRow] = []
    for row in rows:
        worker = worker_of(row)
        over = worker.dead or row[-1] or is_gone(session.host, worker)
        worker.status = "dead" if over else "stopping" if worker.stopping else "live"
        found.append(worker)
    return found


async def over(session: Session) -> list[WorkerRow]:
    """Return workers not marked dead whose lease has ended."""
    rows = await session.rows("sweep.look", f"{LIST} WHERE NOT dead ORDER BY id")
    return [worker for worker, ended in ((worker_of(row), row[-1]) for row in rows) if ended or is_gone(session.host, worker)]


async def lost(session: Session) -> list[str]:
    """Return owners of runs that have no live row."""
    return [owner for (owner,) in await session.rows("sweep.lost", LOST)]


async def sweep(session: Session, limit: int, to: RunStatus, alone_after: int, pause: int) -> Freed:
    """Mark workers dead whose lease is over, then free runs of dead or unknown owners, inside the open transaction."""
    ended = await over(session)
    dead = [w.id for w in ended if await session.rows("sweep.mark", MARK, w.id, w.lease_until)]
    keys = [key for (key,) in await session.rows("sweep.lock", LOCK_LOST, await lost(session), limit)]
    if keys:
        await session.rows("sweep.free", FREE, keys, to.value, alone_after, pause)
    await session.rows("sweep.forget", FORGET, KEPT_DEAD)
    return Freed(dead, len(keys))


async def held(session: Session, namespace: str, serves: Sequence[Serve]) -> list[Serve]:
    """Return those of *serves* of which runs are held for their code and have not excluded this one."""
    return [serves[n - 1] for (n,) in await session.rows("held.look", HELD, namespace, *served(serves))]


async def reopen_held(session: Session, namespace: str, serves: Sequence[Serve], to: RunStatus) -> int:
    """Make runs held for their code claimable where *serves* has a digest they have not excluded."""
    return sum([len(await session.rows("held.reopen", REOPEN, namespace, *serve, to.value)) for serve in serves])


def is_gone(host: Host, worker: WorkerRow) -> bool:
    """Return whether a worker's process is known to be gone: it ran on this boot, in this PID namespace, and does no more.

    Another boot tells nothing here: two machines may have one name, and a healthy worker must not be taken from.
    """
    identity = ProcessIdentity(worker.host, worker.boot, worker.pid, worker.pid_start, worker.pid_namespace)
    return host.process_alive(identity) is False
