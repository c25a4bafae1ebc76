"""What the random traces of `test_differential` do with operations, and what is compared of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from romulus.core.errors import OperationConflict
from romulus.core.machine import Change
from romulus.core.operations import SETTLED, NewIntent, OperationMark, OperationRow, OperationState, Protocol, Report, ReportKind, decide
from romulus.core.pools import DEFAULT_POOL
from romulus.core.record import HoldKind, Record
from romulus.core.transition import Transition
from romulus.store.contract import OperationsServed, Store
from tests.store.kit import HELD, PENDING, SECOND, advance, entry, succeed

S = OperationState
SERVED = OperationsServed((DEFAULT_POOL, "far"), ("write",), ("write",))
# What a run's own transition makes of an operation, where it goes by the table.
MARKS = {
    S.ARMED: (S.CONFIRMED, S.REJECTED, S.NOT_SENT, S.UNKNOWN, S.QUEUED, S.WITHDRAWN),
    S.QUEUED: (S.WITHDRAWN,),
}  # fmt: skip
SEQS = 6  # operations that the transitions of a run speak of


def operating(record: Record, rows: list[OperationRow], random: Random) -> Transition:
    """Record and arm operations, mark and forsake others, now and then what is not so; end or hold the run with it at times."""
    marks = [_mark(row, random) for row in rows if random.random() < 0.4]
    again = {mark.seq for mark in marks if mark.state is S.QUEUED}
    forsaken = [row.seq for row in rows if row.state is not S.QUEUED and row.seq not in again and random.random() < 0.1]
    said: dict[str, Any] = {"marks": marks, "intents": _intents(record, rows, random), "forsaken": forsaken, "operates": True}
    how = random.random()
    if how < 0.12:
        return succeed(record, entry(record.run.position), child=record.run.depth > 0, parent=True, pooled=True, **said)
    if how < 0.2:
        return advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.REVIEW, "nobody knows"), **said)
    return advance(record, entry(record.run.position), parent=True, **said)


def _mark(row: OperationRow, random: Random) -> OperationMark:
    before = row.state if random.random() < 0.9 else random.choice([S.ARMED, S.QUEUED, S.UNKNOWN])
    state = random.choice(MARKS.get(before, (S.UNKNOWN,)))
    return OperationMark(
        row.seq, before, state, due=random.choice([None, 5]) if state is S.UNKNOWN else None, error=random.choice([b"", b"boom"]),
        seen_applied=random.random() < 0.1, awaited=state not in SETTLED,
    )  # fmt: skip


def _intents(record: Record, rows: list[OperationRow], random: Random) -> list[NewIntent]:
    queued = {row.seq for row in rows if row.state is S.QUEUED}
    open_seqs = [seq for seq in range(1, SEQS + 1) if seq in queued or all(seq != row.seq for row in rows) or random.random() < 0.02]
    return [_intent(record, seq, random) for seq in random.sample(open_seqs, min(len(open_seqs), random.choice([0, 1, 1, 2])))]


def _intent(record: Record, seq: int, random: Random) -> NewIntent:
    protocol = Protocol(random.random() < 0.5, SECOND, 0, SECOND, has_lookup=random.random() < 0.5)
    state = random.choice([S.ARMED, S.ARMED, S.QUEUED, S.UNKNOWN])
    pool = "far" if state is S.QUEUED and random.random() < 0.5 else DEFAULT_POOL
    return NewIntent(
        seq, f"{record.run.id}.{record.run.generation}.{seq}", "write", "d1", b"{}", protocol, state, 5 if state is S.ARMED else 0,
        since=1 if state is S.UNKNOWN else None, pool=pool, position=record.run.position,
    )  # fmt: skip


async def take(store: Store, owner: str, limit: int, *, queued: bool) -> Any:
    """Claim operations that are due, or queued in pools."""
    if queued:
        taken = await store.take_queued(owner, "default", SERVED, limit)
    else:
        taken = await store.take_operations(owner, "default", SERVED, limit, S.UNKNOWN)
    return sorted(_face(row) for row in taken.rows), taken.next_due is None


async def report(store: Store, which: int, kind: ReportKind, stale: bool) -> Any:
    """Report on one of all operations, under its claim or one too low."""
    rows = await _all(store)
    if not rows:
        return None
    row = rows[which % len(rows)]
    given = Report("default", row.id, kind, row.owner or "ada", row.fence - stale, b'"v"', retry_at=None if stale else 5)
    try:
        (answer,) = await store.report([given], decide, PENDING)
    except OperationConflict as error:
        return str(error)
    return None if answer is None else (_face(answer.row), answer.changed, str(answer.kind))


async def picture(store: Store) -> Any:
    """Return all operations and their histories, without keys and times."""
    rows = await _all(store)
    notes = [[(n.kind, n.who, n.state, n.body) for n in await store.operation_notes(row.key)] for row in rows]
    return list(zip(map(_face, rows), notes, strict=True))


async def _all(store: Store) -> list[OperationRow]:
    """Return every operation; those that a batch records for several runs have no order among them."""
    return sorted((await store.operations("default", None, None, None, 1000)).items, key=lambda row: row.id)


def _face(row: OperationRow) -> Any:
    plain = replace(row, key=0, run=0, generation=0, fence=0, created_at=0, updated_at=0)
    times = (plain.first_sent_at is None, plain.due is None, plain.ended_at is None)
    return repr(replace(plain, first_sent_at=None, due=None, ended_at=None)), times
