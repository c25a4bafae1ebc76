"""Group commit: the guarded change of run rows and the journal, set-based.

The hot path is two statements whatever the batch: one UPDATE of `runs` with every guard, one INSERT into `journal`. An advance keeps
its owner and touches no index of `runs`; whatever parks, ends, holds or frees goes through the wider update.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString

from romulus.core.machine import ENDS_CLAIM, TERMINAL, Change
from romulus.core.transition import Transition
from romulus.store.queue import lane_sql, queue_sql

from .bulk import Bulk, chunks, flat
from .connection import Row
from .session import Session

# Columns of the VALUES list: 1 key, 2 owner, 3 fence, 4 revision, 5 cancel_seq, 6 generation, then what is written.
# The plus signs and NOT INDEXED leave the planner one way, whatever statistics it has: from each given row to its run by key.
# Without them it may scan `runs`, or the index on owners, against an index it makes of the given rows.
GUARDS: Final[LiteralString] = (
    "runs.key = +t.column1 AND runs.owner = +t.column2 AND runs.fence = +t.column3 AND runs.revision = +t.column4 "
    "AND (t.column5 IS NULL OR runs.cancel_seq = +t.column5) AND runs.generation_key = +t.column6"
)
WRITTEN: Final[LiteralString] = (
    "status = t.column7, position = t.column8, revision = runs.revision + 1, armed = t.column9, last_transition = t.column10, "
    "digest = CASE t.column11 WHEN '' THEN runs.digest ELSE t.column11 END, "
    "losses = CASE t.column12 WHEN 1 THEN 0 ELSE runs.losses END, updated_at = t.column13"
)
LEFT: Final[LiteralString] = (
    "owner = CASE t.column14 WHEN 1 THEN NULL ELSE runs.owner END, excluded = coalesce(t.column15, runs.excluded), "
    "hold_kind = t.column16, hold_reason = t.column17, finished_at = t.column18, wake_at = t.column19, "
    f"lane = {lane_sql('t.column19', 't.column13')}, queue_at = {queue_sql('t.column19', 't.column13')}"
)
ADVANCE: Final = Bulk("apply.advance", f"UPDATE runs NOT INDEXED SET {WRITTEN} FROM (", 13, f") AS t WHERE {GUARDS}")
LEAVE: Final = Bulk("apply.leave", f"UPDATE runs NOT INDEXED SET {WRITTEN}, {LEFT} FROM (", 19, f") AS t WHERE {GUARDS}")
JOURNAL: Final = Bulk(
    "apply.journal",
    "INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition)",
    13,
)
HOLDING: Final = Bulk("apply.holding", "SELECT json_group_array(runs.key) FROM (", 6, f") AS t CROSS JOIN runs NOT INDEXED WHERE {GUARDS}")


def guarded_update(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    """Update the run rows of *transitions*; False: the guards of at least one did not hold (the caller rolls back)."""
    advancing = [_guards(t) + _written(t, now) for t in transitions if _keeps_claim(t)]
    leaving = [_guards(t) + _written(t, now) + _left(t, now) for t in transitions if not _keeps_claim(t)]
    return ADVANCE.write(session, advancing) == len(advancing) and LEAVE.write(session, leaving) == len(leaving)


def write_journal(session: Session, transitions: Sequence[Transition]) -> None:
    """Append every entry, stamped with its claim and its transition."""
    JOURNAL.write(session, [(t.generation, *entry[:10], t.fence, t.id) for t in transitions for entry in t.entries])


def holding(session: Session, transitions: Sequence[Transition], now: int) -> set[int]:
    """Return the keys of the runs whose guards hold now."""
    rows = [_guards(t) for t in transitions if is_due(t, now)]
    keys: set[int] = set()
    for some in chunks(rows):
        keys.update(json.loads(session.value(HOLDING.name, HOLDING.sql(len(some)), flat(some))))
    return keys


def is_due(t: Transition, now: int) -> bool:
    """Return whether the store's clock has reached the timers and deadlines that *t* fires."""
    return t.not_before is None or t.not_before <= now


def _keeps_claim(t: Transition) -> bool:
    return t.change is Change.ADVANCE and t.excluded is None


def _guards(t: Transition) -> Row:
    return (t.run, t.owner, t.fence, t.revision, t.cancel_seq, t.generation)


def _written(t: Transition, now: int) -> Row:
    return (t.status, t.position, t.armed, t.id, t.digest, t.progressed, now)


def _left(t: Transition, now: int) -> Row:
    kind, reason = t.hold or ("", "")
    ends = t.change in ENDS_CLAIM
    wake = (now if t.wake_at == 0 else t.wake_at) if ends else None
    return (ends, t.excluded, kind, reason, now if t.status in TERMINAL else None, wake)
