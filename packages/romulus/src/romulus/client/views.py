"""From stored rows to what people see: every description is made here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from romulus.core.duration import to_datetime
from romulus.core.machine import CLAIMABLE, LIVE, RunStatus
from romulus.core.operations import OperationRow
from romulus.core.pools import DEFAULT_POOL, PoolStanding, PoolState, PoolUnread
from romulus.core.record import Armed, AttemptRow, Entry, Generation, Kind, OpenWait, Record, Run, StartedChild, WorkerRow
from romulus.store.contract import Evidence, StoredEvent, StoredWait

from .reading import Reader
from .records import EventRecord, EvidenceRecord, JournalEntry, PendingCommand, RunDescription, WaitRecord, WorkerRecord

CHILDREN_SHOWN_MAX = 100  # of one run
UNREAD_SHOWN_MAX = 3  # workers that could not read an attempt


class Served:
    """Which workflows the live workers serve: a run of another one is stranded."""

    def __init__(self, workers: Iterable[WorkerRow]) -> None:
        self.live = [worker for worker in workers if worker.status == "live"]
        self.pools = {pool for worker in self.live for pool in json.loads(worker.pools)}
        self._names = {(name, version) for worker in self.live for name, version, _ in json.loads(worker.workflows)}

    def strands(self, run: Run) -> bool:
        """Return whether nobody here can go on with *run*."""
        return run.status in CLAIMABLE and (run.workflow, run.version) not in self._names

    def versions(self, workflow: str) -> list[str]:
        """Return the versions of *workflow* that live workers serve."""
        return [version for name, version in self._names if name == workflow]


def run_view(
    run: Run,
    served: Served,
    *,
    pending: tuple[PendingCommand, ...] | None = None,
    error: str | None = None,
    result: Any = None,
    traceback: str | None = None,
) -> RunDescription:
    """Describe *run*; without *pending* its armed attempts, which its row lists, are shown."""
    return RunDescription(
        id=run.id, status=run.status, position=run.position, workflow=run.workflow, version=run.version,
        fence=run.fence, owner=run.owner, pending=armed_view(run) if pending is None else pending,
        attributes=json.loads(run.attributes or "{}"), result=result, error=error, hold_reason=hold_reason(run),
        generation=run.generation, priority=run.priority, cancel_requests=run.cancel_seq,
        cancel_reason=run.cancel_reason or None, created_at=to_datetime(run.created_at), started_at=_at(run.started_at),
        updated_at=to_datetime(run.updated_at), finished_at=_at(run.finished_at), due=_due(run),
        deadline=_at(run.deadline), stranded=served.strands(run), traceback=traceback,
    )  # fmt: skip


def hold_reason(run: Run) -> str | None:
    """Return why *run* is held, or what kept it from cleaning up; one that was cancelled while it was held is on its way to its end."""
    return None if run.status in LIVE - {RunStatus.HELD} else run.hold_reason or None


def record_view(record: Record, served: Served, reader: Reader, evidence: Sequence[Evidence] = ()) -> RunDescription:
    """Describe a run with all that its record says it awaits; *evidence* tells why workers could not read attempts in pools."""
    generation = record.generation
    return run_view(
        record.run,
        served,
        pending=pending_view(record, reader, served, evidence),
        error=failure_line(generation, reader),
        result=reader.shown_result(generation),
        traceback=reader.traceback(generation.failure) if generation.failure is not None else None,
    )


def failure_line(generation: Generation, reader: Reader) -> str | None:
    """Return what ended *generation*, in one line."""
    return reader.error(generation.failure) if generation.failure is not None else None


def pending_view(record: Record, reader: Reader, served: Served, evidence: Sequence[Evidence] = ()) -> tuple[PendingCommand, ...]:
    """Return what the run awaits, in command order: attempts armed or put off, open waits, live children if they were read."""
    if record.run.status not in LIVE:
        return ()
    errors = {row.seq: reader.error(row.error) for row in record.attempts if row.error}
    errors |= {attempt.seq: _unread(record, attempt, evidence) for attempt in record.pool if attempt.unread}
    armed = armed_view(record.run, errors)
    started = {command.seq for command in armed}
    pooled = [_pooled(attempt, errors.get(attempt.seq), served) for attempt in record.pool]
    started |= {attempt.seq for attempt in record.pool}
    held = record.run.status is RunStatus.HELD
    put_off = [_put_off(row, errors.get(row.seq), held) for row in record.attempts if row.seq not in started]
    waits = [_open_wait(wait) for wait in record.waits]
    children = [_live_child(child) for child in record.children if RunStatus(child.status) in LIVE][:CHILDREN_SHOWN_MAX]
    operations = {row.seq: _operation(row, served) for row in record.operations}
    attempts = [command for command in (*armed, *put_off) if command.seq not in operations]
    return tuple(sorted([*attempts, *pooled, *waits, *children, *operations.values()], key=lambda command: command.seq))


def armed_view(run: Run, errors: dict[int, str] | None = None) -> tuple[PendingCommand, ...]:
    """Return the attempts that may have begun under the last claim."""
    if run.status not in LIVE:
        return ()
    return tuple(
        PendingCommand(armed.seq, "step", armed.name, armed.number, "armed", None, None, (errors or {}).get(armed.seq))
        for armed in (Armed(*fields) for fields in json.loads(run.armed or "[]"))
    )


def entry_view(entry: Entry, reader: Reader) -> JournalEntry:
    """Describe a journal entry."""
    return JournalEntry(
        entry.position, entry.kind, entry.name, entry.seq, entry.attempt, entry.fence, to_datetime(entry.at),
        None if entry.failed else reader.outcome(entry), _entry_error(entry, reader), _told_by(entry, Kind.WAIT),
        _told_by(entry, Kind.CHILD),
    )  # fmt: skip


def event_view(event: StoredEvent, reader: Reader) -> EventRecord:
    """Describe a stored event."""
    return EventRecord(
        event.id, event.name, event.correlation_id, reader.payload(event.payload), to_datetime(event.received_at),
        event.state, event.late, event.run_id,
    )  # fmt: skip


def wait_view(wait: StoredWait) -> WaitRecord:
    """Describe an open wait."""
    return WaitRecord(
        wait.run_id, wait.seq, wait.name, wait.correlation_id, _at(wait.deadline), wait.shared,
        to_datetime(wait.opened_at), wait.event_id,
    )  # fmt: skip


def worker_view(worker: WorkerRow) -> WorkerRecord:
    """Describe a registered worker."""
    served = tuple(f"{name} {version}" for name, version, _ in json.loads(worker.workflows))
    return WorkerRecord(
        worker.id, worker.name, worker.status, worker.host, worker.pid, served, tuple(json.loads(worker.pools)),
        worker.concurrency, to_datetime(worker.started_at), to_datetime(worker.renewed_at),
    )  # fmt: skip


def evidence_view(evidence: Evidence) -> EvidenceRecord:
    """Describe a refused report."""
    detail = cast("dict[str, Any]", json.loads(evidence.detail or "{}"))
    return EvidenceRecord(to_datetime(evidence.at), evidence.kind, evidence.owner, evidence.fence, detail)


def _put_off(row: AttemptRow, error: str | None, held: bool) -> PendingCommand:
    """Describe a command that is tried again: when its back-off is over, of a held run not before it is released."""
    state, due = ("held", None) if held else ("backing off", _at(row.due))
    return PendingCommand(row.seq, "step", row.name, row.number, state, None, due, error)


def _pooled(attempt: PoolStanding, error: str | None, served: Served) -> PendingCommand:
    unserved = attempt.pool not in served.pools and attempt.state == PoolState.QUEUED
    return PendingCommand(
        attempt.seq, "step", attempt.step, attempt.number, attempt.state, _at(attempt.claimed_at), _at(attempt.due), error,
        attempt.pool, attempt.owner, _at(attempt.beat_at), unserved,
    )  # fmt: skip


def _unread(record: Record, attempt: PoolStanding, evidence: Sequence[Evidence]) -> str:
    """Return which workers could not read an attempt that is queued again, the last of them first, and why."""
    known = (record.generation.key, attempt.seq, attempt.number)
    reasons: dict[str, str] = {}
    for each in reversed(evidence):
        if each.kind == "unread_attempt":
            detail = PoolUnread(**json.loads(each.detail))
            if (detail.generation, detail.seq, detail.number) == known:
                reasons.setdefault(each.owner, detail.reason)
    told = [f"worker {owner} cannot read it: {reason}" for owner, reason in list(reasons.items())[:UNREAD_SHOWN_MAX]]
    return "; ".join(told) or "the worker that had claimed it last could not read it"


def _open_wait(wait: OpenWait) -> PendingCommand:
    state = "matched" if wait.deposit else "open"
    return PendingCommand(wait.seq, "wait", wait.name, 0, state, None, _at(wait.deadline))


def _live_child(child: StartedChild) -> PendingCommand:
    return PendingCommand(child.seq, "child", child.run_id, 0, child.status, None, None)


def _operation(row: OperationRow, served: Served) -> PendingCommand:
    pool = None if row.pool == DEFAULT_POOL else row.pool
    owner = None if row.by_run else row.owner
    unserved = pool is not None and pool not in served.pools
    return PendingCommand(
        row.seq, "operation", row.name, row.sends, str(row.state), _at(row.first_sent_at), _at(row.due), row.hold_reason or None, pool,
        owner, None, unserved,
    )  # fmt: skip


def _entry_error(entry: Entry, reader: Reader) -> str | None:
    if not entry.failed:
        return None
    if entry.body:
        return reader.error(entry.body)
    if entry.kind == Kind.OPERATION:
        return f"OperationAbandoned: {json.loads(entry.info)[-1]}"
    return f"child {json.loads(entry.info)[1]}" if entry.kind == Kind.CHILD and entry.info else "deadline passed"


def _told_by(entry: Entry, kind: Kind) -> str | None:
    """Return the event or the child whose outcome an entry of that kind is."""
    return str(json.loads(entry.info)[0]) if entry.info and entry.kind == kind else None


def _due(run: Run) -> datetime | None:
    return _at(run.wake_at) if run.status in CLAIMABLE else None


def _at(instant: int | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
