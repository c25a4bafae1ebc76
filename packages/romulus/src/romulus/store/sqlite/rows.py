"""Rows to values and back: column lists, and the queries that return a whole answer as one row of JSON.

Each row a cursor steps to gives the interpreter lock away and has to win it back from a busy event loop (up to 5 ms a row),
so an answer of many rows is put together inside SQLite and read in one step.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString, TypeVar

from romulus.core.machine import RunStatus
from romulus.core.record import AttemptRow, Deposit, Doubt, Entry, Generation, Message, OpenWait, Record, Run, WorkerRow

from .connection import Bindings
from .session import Session

T = TypeVar("T")

# In the order of the dataclass's fields.
RUN: Final[LiteralString] = (
    "r.key, r.namespace, r.id, r.workflow, r.version, r.status, r.generation, r.generation_key, r.position, r.revision, r.owner, r.fence, "
    "r.cancel_seq, r.cancel_reason, r.last_transition, r.armed, r.losses, r.wake_at, r.priority, r.digest, r.excluded, r.hold_kind, "
    "r.hold_reason, r.deadline, r.attributes, r.created_at, r.started_at, r.updated_at, r.finished_at, r.depth"
)
# The run row has the start of the generation in progress; a finished one keeps its own.
GENERATION: Final[LiteralString] = (
    "g.key, g.number, g.workflow, g.version, hex(g.input), hex(g.input_digest), g.seeds, "
    "coalesce(g.started_at, CASE WHEN g.key = r.generation_key THEN r.started_at END), g.ended_at, "
    "CASE WHEN g.result IS NULL THEN NULL ELSE hex(g.result) END, CASE WHEN g.failure IS NULL THEN NULL ELSE hex(g.failure) END, "
    "g.timeout, g.ended_by"
)
ENTRY: Final[LiteralString] = "position, kind, seq, name, attempt, at, failed, hex(body), hex(digest), info, fence, transition"
ATTEMPT: Final[LiteralString] = (
    "a.seq, a.digest, a.number, a.failures, a.losses, a.due, hex(a.error), hex(a.heartbeat), coalesce(n.name, '')"
)
WAIT: Final[LiteralString] = (
    "w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.include_late, e.arrival, e.id, e.name, "
    "e.correlation_id, hex(e.payload), e.received_at"
)
MESSAGE: Final[LiteralString] = "key, about, seq, failed, hex(body), info"
INBOX_READ: Final[LiteralString] = "500"  # messages read with a record: `contract.INBOX_MAX`
WORKER: Final[LiteralString] = (
    "id, namespace, name, host, boot, pid, pid_start, pid_namespace, workflows, pools, operations, concurrency, "
    "started_at, renewed_at, lease_until, dead, stopping"
)
RECORD: Final[LiteralString] = (
    f"json_array({RUN}), json_array({GENERATION}), "
    f"json((SELECT json_group_array(json_array({ATTEMPT}) ORDER BY a.seq) FROM attempts a LEFT JOIN attempt_names n "
    "ON n.generation = a.generation AND n.seq = a.seq WHERE a.generation = r.generation_key)), "
    f"json((SELECT json_group_array(json_array({WAIT}) ORDER BY w.seq) FROM waits w LEFT JOIN events e ON e.arrival = w.event "
    "WHERE w.run = r.key)), "
    f"json((SELECT json_group_array(json_array({MESSAGE}) ORDER BY key) FROM (SELECT * FROM inbox WHERE run = r.key "
    f"ORDER BY key LIMIT {INBOX_READ}))), EXISTS (SELECT 1 FROM children WHERE generation = r.generation_key), "
    "EXISTS (SELECT 1 FROM operations WHERE generation = r.generation_key), "
    "EXISTS (SELECT 1 FROM pool_attempts WHERE generation = r.generation_key), "
    "(SELECT json_array(since, restored_at) FROM doubts WHERE run = r.key)"
)
FROM_RUNS: Final[LiteralString] = "FROM runs r JOIN generations g ON g.key = r.generation_key"


def gathered(columns: LiteralString, rest: LiteralString) -> LiteralString:
    """Return the query that answers the rows of ``SELECT columns rest`` as one JSON array."""
    return f"SELECT json_group_array(json_array({columns})) {rest}"


def read_all(session: Session, name: LiteralString, sql: LiteralString, bindings: Bindings, make: Callable[[Sequence[Any]], T]) -> list[T]:
    """Return what *make* makes of each row of a `gathered` query."""
    return [make(row) for row in json.loads(session.value(name, sql, bindings))]


def blob(text: str | None) -> bytes | None:
    """Return the bytes of a nullable hex column."""
    return None if text is None else bytes.fromhex(text)


def run_of(row: Sequence[Any]) -> Run:
    """Return the run of a row of `RUN`."""
    run = Run(*row)
    run.status = RunStatus(run.status)
    return run


def generation_of(row: Sequence[Any]) -> Generation:
    """Return the generation of a row of `GENERATION`."""
    key, number, workflow, version, given, digest, seeds, started, ended, result, failure, timeout, ended_by = row
    return Generation(
        key, number, workflow, version, bytes.fromhex(given), bytes.fromhex(digest), seeds,
        started_at=started, ended_at=ended, result=blob(result), failure=blob(failure), timeout=timeout, ended_by=ended_by,
    )  # fmt: skip


def entry_of(row: Sequence[Any]) -> Entry:
    """Return the entry of a row of `ENTRY`."""
    position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition = row
    return Entry(position, kind, seq, name, attempt, at, failed == 1, bytes.fromhex(body), bytes.fromhex(digest), info, fence, transition)


def attempt_of(row: Sequence[Any]) -> AttemptRow:
    """Return the attempt row of a row of `ATTEMPT`."""
    seq, digest, number, failures, losses, due, error, heartbeat, name = row
    return AttemptRow(seq, digest, number, failures, losses, due, bytes.fromhex(error), bytes.fromhex(heartbeat), name)


def wait_of(row: Sequence[Any]) -> OpenWait:
    """Return the open wait, with its deposit, of a row of `WAIT`."""
    seq, name, correlation_id, deadline, shared, include_late, arrival, *event = row
    deposit = None if arrival is None else Deposit(arrival, event[0], event[1], event[2], bytes.fromhex(event[3]), event[4])
    return OpenWait(seq, name, correlation_id, deadline, shared == 1, include_late == 1, deposit)


def message_of(row: Sequence[Any]) -> Message:
    """Return the inbox message of a row of `MESSAGE`."""
    key, about, seq, failed, body, info = row
    return Message(key, about, seq, failed == 1, bytes.fromhex(body), info)


def worker_of(row: Sequence[Any]) -> WorkerRow:
    """Return the worker of a row of `WORKER`."""
    worker = WorkerRow(*row)
    worker.dead, worker.stopping = worker.dead == 1, worker.stopping == 1
    return worker


def record_of(row: Sequence[Any]) -> Record:
    """Return the record, without entries, of a row of `RECORD` (its parts are JSON inside JSON)."""
    run, generation, attempts, waits, inbox, parent, operates, pooled, doubt = row
    return Record(
        run_of(run), generation_of(generation), attempts=[attempt_of(a) for a in attempts], waits=[wait_of(w) for w in waits],
        inbox=[message_of(m) for m in inbox], parent=parent == 1, operates=operates == 1, pooled=pooled == 1,
        doubt=None if doubt is None else Doubt(*json.loads(doubt)) if isinstance(doubt, str) else Doubt(*doubt),
    )  # fmt: skip
