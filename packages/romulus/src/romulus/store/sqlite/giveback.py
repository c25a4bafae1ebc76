"""Closing waits so that an event found there goes back, unmatched, under its arrival number."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString

from .connection import Row
from .session import Session

OF_SEQS: Final[LiteralString] = (
    "key IN (SELECT w.key FROM json_each(?) t CROSS JOIN waits w ON w.run = t.value ->> 0 AND w.seq = t.value ->> 1)"
)
OF_RUNS: Final[LiteralString] = "run IN (SELECT value FROM json_each(?))"
# An event that another wait still holds (shared), or that was consumed, does not go back.
UNMATCHED: Final[LiteralString] = (
    "UPDATE events SET state = 'unmatched', run = NULL WHERE arrival IN (SELECT value FROM json_each(?)) AND state = 'matched' "
    "AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.event = events.arrival)"
)
LATE: Final[LiteralString] = "INSERT OR IGNORE INTO late (event, run) SELECT value ->> 0, value ->> 1 FROM json_each(?)"
REQUEUED: Final[LiteralString] = (
    "INSERT INTO to_match (namespace, name, correlation_id) SELECT namespace, name, correlation_id FROM events "
    "WHERE arrival IN (SELECT value FROM json_each(?)) AND state = 'unmatched'"
)


def give_back(session: Session, waits: Sequence[tuple[int, int]], late: bool) -> None:
    """Close the waits (run, seq); *late*: their events lost against the deadline and are marked so for that run."""
    if waits:
        _give_back(session, OF_SEQS, waits, late)


def withdraw_all(session: Session, runs: Sequence[int]) -> None:
    """Close every wait of *runs*."""
    if runs:
        _give_back(session, OF_RUNS, runs, False)


def _give_back(session: Session, which: LiteralString, given: Sequence[object], late: bool) -> None:
    found = session.run("waits.close", f"DELETE FROM waits WHERE {which} RETURNING event, run", (json.dumps(given),))
    held: list[Row] = [row for row in found if row[0] is not None]
    if not held:
        return
    events = (json.dumps([event for event, _ in held]),)
    if late:
        session.run("waits.late", LATE, (json.dumps(held),))
    session.run("waits.unmatched", UNMATCHED, events)
    session.run("waits.requeued", REQUEUED, events)
