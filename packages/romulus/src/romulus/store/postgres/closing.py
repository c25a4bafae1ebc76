"""Closing waits: `DELETE … RETURNING event`, and what becomes of an event found there.

An event that goes back is queued in `to_match` under its arrival number, and a matcher looks at it after this commit: two transitions
that each close one of an event's shared waits cannot both see the other's wait and leave the event with nobody.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, LiteralString

from romulus.core.transition import Closing, Transition

from .ending import ends
from .rows import Row
from .statement import Statement

CLOSES: Final[LiteralString] = "id bigint, run bigint, seq integer, event bigint, how text"
# How a close is done: as what stays of the event, where the wait goes; `off` leaves the wait open without its event.
HOW: Final = {Closing.CONSUMED: "consumed", Closing.TIMED_OUT: "late", Closing.WITHDRAWN: "back", Closing.BAD: "off"}
MISHELD: Final[LiteralString] = (
    "SELECT x.id FROM closes x WHERE x.how IN ('consumed', 'off', 'bad') AND NOT EXISTS "
    "(SELECT 1 FROM romulus.waits w WHERE w.run = x.run AND w.seq = x.seq AND w.event = x.event)"
)
ASKED: Final[LiteralString] = "SELECT d.key AS run, x.seq, x.how FROM closes x JOIN done d ON d.id = x.id WHERE x.how <> 'off'"
LEFT_OVER: Final[LiteralString] = "SELECT w.run, w.seq, 'back' FROM ended e JOIN romulus.waits w ON w.run = e.key"
NOT_ASKED: Final[LiteralString] = " WHERE NOT EXISTS (SELECT 1 FROM closes x WHERE x.run = w.run AND x.seq = w.seq)"
# The locks are taken in the order of (run, seq), after those of the run rows, since all of `done` is read before.
LOCKED: Final[LiteralString] = (
    "locked AS MATERIALIZED (SELECT w.run, w.seq, p.how FROM picked p JOIN romulus.waits w ON w.run = p.run AND w.seq = p.seq "
    "ORDER BY w.run, w.seq FOR UPDATE OF w)"
)
CLOSED: Final[LiteralString] = (
    "closed AS (DELETE FROM romulus.waits w USING locked l WHERE w.run = l.run AND w.seq = l.seq "
    "RETURNING w.run, w.event, w.namespace, w.name, w.correlation_id, l.how)"
)
DEALT: Final[LiteralString] = (
    "dealt AS (INSERT INTO romulus.dealt (event, run, how) SELECT event, run, how FROM closed "
    "WHERE event IS NOT NULL AND how <> 'back' ORDER BY event, run ON CONFLICT DO NOTHING)"
)
GIVEN_BACK: Final[LiteralString] = (
    "given_back AS (INSERT INTO romulus.to_match (namespace, name, correlation_id, event) "
    "SELECT namespace, name, correlation_id, event FROM closed WHERE event IS NOT NULL AND how IN ('back', 'late'))"
)
TAKEN_OFF: Final[LiteralString] = (
    "taken_off AS (UPDATE romulus.waits w SET event = NULL FROM closes x JOIN done d ON d.id = x.id WHERE x.how = 'off' AND w.run = d.key "
    "AND w.seq = x.seq AND w.event = x.event RETURNING w.run, x.event, w.namespace, w.name, w.correlation_id), "
    "spoilt AS (INSERT INTO romulus.dealt (event, run, how) SELECT event, run, 'bad' FROM taken_off ORDER BY event, run "
    "ON CONFLICT DO NOTHING), "
    "open_again AS (INSERT INTO romulus.to_match (namespace, name, correlation_id) SELECT namespace, name, correlation_id FROM taken_off)"
)


def close_waits(s: Statement, transitions: Sequence[Transition]) -> bool:
    """Add what a batch closes, before its update of the runs; return whether there is anything."""
    closes = list(_rows(transitions))
    if closes:
        s.part(f"closes AS MATERIALIZED (SELECT * FROM {s.rows(CLOSES, closes)} x)")
    return bool(closes)


def write_closes(s: Statement, transitions: Sequence[Transition]) -> None:
    """Add the closing itself, after `done` and `ended` are there."""
    closes, ending = any(t.closes for t in transitions), any(ends(t) for t in transitions)
    if not closes and not ending:
        return
    left_over: LiteralString = f"{LEFT_OVER}{NOT_ASKED}" if closes else LEFT_OVER
    asked: LiteralString = ASKED if closes else ""
    both: LiteralString = " UNION ALL " if closes and ending else ""
    union: LiteralString = asked + both + (left_over if ending else "")
    s.part(f"picked (run, seq, how) AS ({union})")
    for part in (LOCKED, CLOSED, DEALT, GIVEN_BACK):
        s.part(part)
    if closes:
        s.part(TAKEN_OFF)


def _rows(transitions: Sequence[Transition]) -> Iterator[Row]:
    """Yield each close; an event that did not fit is the end of its wait where the run ends."""
    for t in transitions:
        for c in t.closes:
            how = "bad" if c.how is Closing.BAD and ends(t) else HOW[c.how]
            yield t.id, t.run, c.seq, c.event, how
