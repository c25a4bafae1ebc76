"""Rows to values and back: column lists and what is made of them."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.record import AttemptRow, Deposit, Doubt, Entry, Generation, Message, OpenWait, Record, Run, WorkerRow

from .schema import GENERATION_BITS

Row: TypeAlias = Sequence[Any]

# In the order of the dataclass's fields.
RUN: Final[LiteralString] = (
    "r.key, r.namespace, r.id, r.workflow, r.version, r.status, r.generation, (r.key << 24) | r.generation, r.position, r.revision, "
    "r.owner, r.fence, r.cancel_seq, r.cancel_reason, r.last_transition, r.armed, r.losses, r.wake_at, r.priority, r.digest, r.excluded, "
    "r.hold_kind, r.hold_reason, r.deadline, r.attributes, r.created_at, r.started_at, r.updated_at, r.finished_at, r.depth"
)
RUN_COLUMNS: Final = 30
# The run row has the start of the generation in progress; a finished one keeps its own.
GENERATION: Final[LiteralString] = (
    "(g.run << 24) | g.number, g.number, g.workflow, g.version, g.input, g.input_digest, g.seeds, "
    "coalesce(g.started_at, CASE WHEN g.number = r.generation THEN r.started_at END), g.ended_at, g.result, g.failure, "
    "g.timeout, g.ended_by"
)
GENERATION_COLUMNS: Final = 13
ENTRY: Final[LiteralString] = "position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition"
WORKER: Final[LiteralString] = (
    "id, namespace, name, host, boot, pid, pid_start, pid_namespace, workflows, pools, operations, concurrency, "
    "started_at, renewed_at, lease_until, dead, stopping"
)
# What is joined is reached by its own key, whatever statistics say (OFFSET 0).
# The messages of a run `r`: what a child told belongs to the command of the current generation that has it, or waits for one.
MAIL: Final[LiteralString] = (
    "FROM romulus.inbox i LEFT JOIN LATERAL (SELECT * FROM romulus.children WHERE child = i.child AND (parent + 0) = r.key "
    "AND generation = r.generation OFFSET 0) c ON true WHERE i.run = r.key AND (i.child IS NULL OR c.child IS NOT NULL)"
)
RECORD: Final[LiteralString] = (
    f"{RUN}, {GENERATION}, ARRAY(SELECT ROW(a.seq, a.digest, a.number, a.failures, a.losses, a.due, a.error, a.heartbeat, a.name) "
    "FROM romulus.attempts a WHERE a.run = r.key AND a.generation = r.generation ORDER BY a.seq), "
    "ARRAY(SELECT ROW(w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.include_late, e.arrival, e.id, e.name, e.correlation_id, "
    "e.payload, e.received_at) FROM romulus.waits w LEFT JOIN LATERAL (SELECT * FROM romulus.events WHERE arrival = w.event OFFSET 0) e "
    "ON true WHERE w.run = r.key ORDER BY w.seq), "
    f"ARRAY(SELECT ROW(i.key, i.about, coalesce(c.seq, i.seq), i.failed, i.body, i.info) {MAIL} ORDER BY i.key LIMIT 500), "
    "EXISTS (SELECT 1 FROM romulus.children c WHERE c.parent = r.key AND c.generation = r.generation), "
    "EXISTS (SELECT 1 FROM romulus.operations o WHERE o.run = r.key AND o.generation = r.generation), "
    "EXISTS (SELECT 1 FROM romulus.pool_attempts a WHERE a.run = r.key AND a.generation = r.generation), "
    "(SELECT ARRAY[d.since, d.restored_at] FROM romulus.doubts d WHERE d.run = r.key)"
)
# A run's generation is reached by its key, too: of many runs, all generations there are were read instead.
ITS_GENERATION: Final[LiteralString] = (
    "CROSS JOIN LATERAL (SELECT * FROM romulus.generations WHERE run = r.key AND number = r.generation OFFSET 0) g"
)
FROM_RUNS: Final[LiteralString] = f"FROM romulus.runs r {ITS_GENERATION}"


def of_name(namespace: LiteralString, name: LiteralString) -> LiteralString:
    """Return the condition for the row of that namespace and ID, which the index of both finds, whatever statistics say.

    No other index yields IDs in order. By equality alone, that of listings looked as good in a new database: it was read from end to end.
    """
    return f"WHERE namespace = {namespace} AND id >= {name} AND id <= {name} ORDER BY id LIMIT 1"


# A run named by `n`, a run named by the first two parameters, and the first generation of a run `r`.
RUN_OF_NAME: Final[LiteralString] = f"CROSS JOIN LATERAL (SELECT * FROM romulus.runs {of_name('n.namespace', 'n.id')}) r"
ITSELF: Final[LiteralString] = f"(SELECT * FROM romulus.runs {of_name('$1', '$2')}) r"
FIRST_GENERATION: Final[LiteralString] = (
    "CROSS JOIN LATERAL (SELECT * FROM romulus.generations WHERE run = r.key AND number = 1 OFFSET 0) g"
)


def generation_key(run: int, number: int) -> int:
    """Return the key of a generation: it holds its run's, so that whatever has it can find the run's shard."""
    return run << GENERATION_BITS | number


def array(values: Iterable[bool | int | None]) -> str:
    """Return the text of an array, for `$1::text::bigint[]`: the driver takes each element of a list for a container that it asks about."""
    return "{" + str(list(values))[1:-1].replace("None", "NULL") + "}"


def columns(rows: Sequence[Row]) -> list[list[Any]]:
    """Return the arrays of a statement over *rows*, one for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


def served(serves: Sequence[tuple[str, str, str]]) -> list[list[str]]:
    """Return the workflows, versions and digests that a worker serves, also where it serves none."""
    return [[serve[n] for serve in serves] for n in range(3)]


def generation_parts(key: int) -> tuple[int, int]:
    """Return (run key, generation number) of a generation's key."""
    return key >> GENERATION_BITS, key & ((1 << GENERATION_BITS) - 1)


def run_of(row: Row) -> Run:
    """Return the run of a row that begins with `RUN`."""
    run = Run(*row[:RUN_COLUMNS])
    run.status = RunStatus(run.status)
    return run


def generation_of(row: Row) -> Generation:
    """Return the generation of a row of `GENERATION`."""
    return Generation(*row)


def run_and_generation_of(row: Row) -> tuple[Run, Generation]:
    """Return both of a row of `RUN, GENERATION`."""
    return run_of(row), generation_of(row[RUN_COLUMNS : RUN_COLUMNS + GENERATION_COLUMNS])


def record_of(row: Row) -> Record:
    """Return the record, without entries, of a row of `RECORD`."""
    run, generation = run_and_generation_of(row)
    attempts, waits, inbox, parent, operates, pooled, doubt = row[RUN_COLUMNS + GENERATION_COLUMNS :]
    return Record(
        run, generation, attempts=[AttemptRow(*a) for a in attempts], waits=[_wait_of(w) for w in waits],
        inbox=[Message(*m) for m in inbox], parent=parent, operates=operates, pooled=pooled,
        doubt=None if doubt is None else Doubt(*doubt),
    )  # fmt: skip


def entry_of(row: Row) -> Entry:
    """Return the entry of a row of `ENTRY`."""
    return Entry(*row)


def worker_of(row: Row) -> WorkerRow:
    """Return the worker of a row that begins with `WORKER`."""
    return WorkerRow(*row[:17])


def _wait_of(row: Row) -> OpenWait:
    seq, name, correlation_id, deadline, shared, include_late, arrival, *event = row
    deposit = None if arrival is None else Deposit(arrival, *event)
    return OpenWait(seq, name, correlation_id, deadline, shared, include_late, deposit)
