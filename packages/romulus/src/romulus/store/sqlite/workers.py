"""Workers: registration, leases on the machine's monotonic clock, dead marks, and the runs freed from the dead."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import astuple
from typing import Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.ports import Host, ProcessIdentity
from romulus.core.record import WorkerRow
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import Freed
from romulus.store.queue import lane_sql, queue_sql

from .apply import apply
from .pools import renew_leases
from .rows import WORKER, gathered, read_all, worker_of
from .session import Session

Serve: TypeAlias = tuple[str, str, str]

KEPT_DEAD: Final = 24 * 3600 * 1_000_000  # µs a dead worker's row stays in listings
INSERT: Final[LiteralString] = f"INSERT INTO workers ({WORKER}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
OPERATING: Final[LiteralString] = "INSERT OR IGNORE INTO operating (namespace, workflow, version) VALUES (?, ?, ?)"
RENEW: Final[LiteralString] = "UPDATE workers SET lease_until = ?, renewed_at = ? WHERE id = ? AND NOT dead"
MARK: Final[LiteralString] = "UPDATE workers SET dead = 1 WHERE id = ? AND NOT dead AND lease_until = ?"
# Owners of runs, each found by one step in the index; those without a live row are dead or were never known here.
LOST: Final[LiteralString] = (
    "WITH RECURSIVE o (owner) AS (SELECT min(owner) FROM runs WHERE owner IS NOT NULL UNION ALL "
    "SELECT (SELECT min(owner) FROM runs WHERE owner > o.owner) FROM o WHERE o.owner IS NOT NULL) "
    "SELECT owner FROM o WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM workers WHERE NOT dead)"
)
# At once, or after a pause that doubles with each loss beyond the first few.
WAITS: Final[LiteralString] = "(?1 + CASE WHEN losses + 1 >= ?5 THEN ?6 << min(losses + 1 - ?5, 6) ELSE 0 END)"
FREE: Final[LiteralString] = (
    "UPDATE runs SET owner = NULL, fence = max(fence + 1, ?1), losses = losses + 1, status = ?2, updated_at = ?1, "
    f"wake_at = {WAITS}, lane = {lane_sql(WAITS, '?1')}, queue_at = {queue_sql(WAITS, '?1')} "
    "WHERE key IN (SELECT key FROM runs WHERE owner IN (SELECT value FROM json_each(?3)) LIMIT ?4)"
)
FITTING: Final[LiteralString] = (
    "SELECT 1 FROM runs WHERE namespace = ?1 AND workflow = ?2 AND version = ?3 "
    "AND hold_kind <> '' AND hold_kind = 'code' AND instr(' ' || excluded || ' ', ' ' || ?4 || ' ') = 0 LIMIT 1"
)
REOPEN: Final[LiteralString] = (
    "UPDATE runs SET status = ?5, hold_kind = '', hold_reason = '', wake_at = ?6, lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = ?6 - priority * 10000000, updated_at = ?6 WHERE namespace = ?1 AND workflow = ?2 AND version = ?3 "
    "AND hold_kind <> '' AND hold_kind = 'code' AND instr(' ' || excluded || ' ', ' ' || ?4 || ' ') = 0"
)


class SQLiteLease:
    """A worker's lease, on a connection of its own; used by the lease thread and, for a run that is stuck, by the watchdog's."""

    def __init__(self, session: Session, worker_id: str, length: int, until: int) -> None:
        self._session, self._worker_id, self._length, self._until = session, worker_id, length, until
        self._lock = threading.Lock()  # one transaction on the connection at a time

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        """Extend the lease by its length from now; False: the worker was marked dead."""
        until = self._session.host.monotonic() + self._length
        with self._lock:
            if not self._session.alone("lease.renew", RENEW, (until, self._session.clock.now(), self._worker_id)):
                return False
            renew_leases(self._session, self._worker_id, until, attempts)
        self._until = until
        return True

    def remaining(self) -> int:
        """Return µs left by the last successful renewal."""
        return self._until - self._session.host.monotonic()

    def apply(self, transition: Transition) -> Verdict:
        """Write one transition from the lease's thread."""
        with self._lock:
            return apply(self._session, [transition])[0]

    def close(self) -> None:
        """Close the lease's connection."""
        with self._lock:
            self._session.close()


def register(session: Session, worker: WorkerRow, lease: int, now: int) -> int:
    """Insert the worker's row inside the open transaction and return when its lease ends (monotonic clock)."""
    until = session.host.monotonic() + lease
    row = astuple(worker)[:12]
    session.run("worker.register", INSERT, (*row, now, now, until, False, worker.stopping))
    for workflow, version in worker.operating:
        session.run("worker.operating", OPERATING, (worker.namespace, workflow, version))
    return until


def deregister(session: Session, worker_id: str) -> None:
    """Remove the worker's row."""
    session.run("worker.deregister", "DELETE FROM workers WHERE id = ?", (worker_id,))


def mark_stopping(session: Session, worker_id: str) -> None:
    """Show that the worker claims nothing any more."""
    session.run("worker.stopping", "UPDATE workers SET stopping = 1 WHERE id = ?", (worker_id,))


def mark_dead(session: Session, worker_id: str) -> None:
    """Mark a worker dead now."""
    session.run("worker.dead", "UPDATE workers SET dead = 1 WHERE id = ?", (worker_id,))


def listed(session: Session, namespace: str) -> list[WorkerRow]:
    """Return the workers of *namespace* with their status as of now."""
    found = read_all(session, "worker.list", gathered(WORKER, "FROM workers WHERE namespace = ?"), (namespace,), worker_of)
    for worker in found:
        worker.status = _status(session.host, worker)
    return sorted(found, key=lambda worker: (worker.started_at, worker.id))


def sweep(session: Session, limit: int, to: RunStatus, alone_after: int, pause: int) -> Freed:
    """Mark workers dead whose lease is over, then free runs of dead or unknown owners; see `Store.sweep`."""
    over, lost = session.read(lambda s: (_over(s), _lost(s)))
    if not over and not lost:
        return Freed()
    return session.write(lambda s, now: _sweep(s, limit, to, now, alone_after, pause))


def reopen_held(session: Session, namespace: str, serves: Sequence[Serve], to: RunStatus) -> int:
    """Make runs held for their code claimable where *serves* has a digest they have not excluded; no lock is taken while there are none."""
    if not session.read(lambda s: any(s.run("held.look", FITTING, (namespace, *serve)) for serve in serves)):
        return 0
    return session.write(lambda s, now: sum(s.count("held.reopen", REOPEN, (namespace, *serve, to, now)) for serve in serves))


def is_over(host: Host, worker: WorkerRow) -> bool:
    """Return whether a worker's lease has ended: by its time, by a reboot, or because its process is gone."""
    if worker.boot != host.identity.boot or worker.lease_until <= host.monotonic():
        return True
    identity = ProcessIdentity(worker.host, worker.boot, worker.pid, worker.pid_start, worker.pid_namespace)
    return host.process_alive(identity) is False


def _status(host: Host, worker: WorkerRow) -> str:
    if worker.dead or is_over(host, worker):
        return "dead"
    return "stopping" if worker.stopping else "live"


def _over(session: Session) -> list[WorkerRow]:
    rows = read_all(session, "sweep.look", gathered(WORKER, "FROM workers WHERE NOT dead"), (), worker_of)
    return [worker for worker in rows if is_over(session.host, worker)]


def _lost(session: Session) -> list[str]:
    return [owner for (owner,) in session.run("sweep.lost", LOST)]


def _sweep(session: Session, limit: int, to: RunStatus, now: int, alone_after: int, pause: int) -> Freed:
    dead = [w.id for w in _over(session) if session.count("sweep.mark", MARK, (w.id, w.lease_until))]
    lost = json.dumps(_lost(session))
    freed = session.count("sweep.free", FREE, (now, to, lost, limit, alone_after, pause))
    session.run(
        "sweep.forget",
        "DELETE FROM workers WHERE dead AND renewed_at < ? AND NOT EXISTS (SELECT 1 FROM runs WHERE owner = workers.id)",
        (now - KEPT_DEAD,),
    )
    return Freed(dead, freed)
