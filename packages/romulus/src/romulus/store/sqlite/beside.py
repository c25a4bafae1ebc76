"""What a transition writes beside the run row and the journal: attempts, waits, and a generation's end and successor."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString

from romulus.core.machine import TERMINAL, Change
from romulus.core.transition import Closing, Transition

from .bulk import Bulk
from .children import attach_children, leave_children, start_children, take_messages, tell_parents
from .generations import begin_generation
from .giveback import give_back, withdraw_all
from .operations import leave_operations, write_operations
from .pools import leave_pools, write_pools
from .session import Session

ATTEMPTS: Final = Bulk(
    "apply.attempts",
    "INSERT OR REPLACE INTO attempts (generation, seq, digest, number, failures, losses, due, error, heartbeat)",
    9,
)
ATTEMPT_NAMES: Final = Bulk("apply.attempt_names", "INSERT OR REPLACE INTO attempt_names (generation, seq, name)", 3)
WAITS: Final = Bulk(
    "apply.waits",
    "INSERT INTO waits (run, seq, namespace, name, correlation_id, deadline, shared, include_late, opened_at, event) "
    "SELECT t.column1, t.column2, r.namespace, t.column3, t.column4, t.column5, t.column6, t.column7, t.column8, NULL FROM (",
    8,
    ") AS t CROSS JOIN runs r ON r.key = t.column1",
)
QUEUED: Final = Bulk(
    "apply.to_match",
    "INSERT INTO to_match (namespace, name, correlation_id) SELECT r.namespace, t.column2, t.column3 FROM (",
    3,
    ") AS t CROSS JOIN runs r ON r.key = t.column1",
)
ENDED: Final = Bulk(
    "apply.ended",
    "UPDATE generations SET started_at = coalesce(generations.started_at, t.column6), ended_at = t.column2, result = t.column3, "
    "failure = t.column4, ended_by = t.column5 FROM (",
    6,
    ") AS t WHERE generations.key = t.column1",
)
ATTRIBUTES: Final = Bulk(
    "apply.attributes", "UPDATE runs NOT INDEXED SET attributes = t.column2 FROM (", 2, ") AS t WHERE runs.key = +t.column1"
)
SETTLED: Final = (
    "DELETE FROM attempts WHERE (generation, seq) IN (SELECT a.generation, a.seq FROM json_each(?) t "
    "CROSS JOIN attempts a ON a.generation = t.value ->> 0 AND a.seq = t.value ->> 1)"
)
# Of the runs that a shared event was dealt with by, the first is named: of those that consumed it, if any did.
BY: Final[LiteralString] = (
    "(SELECT value ->> 2 AS event, min(value ->> 0) AS run FROM json_each(?) GROUP BY value ->> 2) t WHERE events.arrival = t.event"
)
CONSUMED: Final[LiteralString] = (
    f"UPDATE events SET state = 'consumed', run = CASE events.state WHEN 'consumed' THEN min(events.run, t.run) ELSE t.run END FROM {BY}"
)
BAD: Final[LiteralString] = (
    "UPDATE events SET state = 'bad', run = CASE events.state WHEN 'bad' THEN min(events.run, t.run) ELSE t.run END "
    f"FROM {BY} AND events.state <> 'consumed'"
)
# A parked run whose event or message came, and whose wake its owner took, while the park was under way would sleep on it.
READY: Final = (
    "UPDATE runs SET wake_at = ?1, lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, queue_at = ?1 - priority * 10000000 "
    "WHERE key IN (SELECT value FROM json_each(?2)) AND (EXISTS (SELECT 1 FROM waits w WHERE w.run = runs.key AND w.event IS NOT NULL) "
    "OR EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.key))"
)


def write_beside(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    """Write all of it; False: an event or message that a transition consumes is not there (the caller rolls back)."""
    _attempts(session, transitions)
    if not (_close_waits(session, transitions, now) and take_messages(session, transitions)):
        return False
    if not write_operations(session, transitions, now):
        return False
    write_pools(session, transitions, now)
    _open_waits(session, transitions, now)
    start_children(session, transitions, now)
    _attributes(session, transitions)
    ended = [t for t in transitions if t.change is Change.CONTINUE or t.status in TERMINAL]
    if ended:
        _end(session, ended, now)
    attach_children(session, transitions)
    parked = [t.run for t in transitions if t.change is Change.PARK]
    if parked:
        session.run("apply.ready", READY, (now, json.dumps(parked)))
    return True


def _attempts(session: Session, transitions: Sequence[Transition]) -> None:
    settled = [(t.generation, seq) for t in transitions for seq in t.settled]
    if settled:
        session.run(
            "apply.settled",
            SETTLED,
            (json.dumps(settled),),
        )
    rows = [(t.generation, a) for t in transitions for a in t.attempts]
    ATTEMPTS.write(session, [(g, a.seq, a.digest, a.number, a.failures, a.losses, a.due, a.error, a.heartbeat) for g, a in rows])
    ATTEMPT_NAMES.write(session, [(g, a.seq, a.name) for g, a in rows])


def _attributes(session: Session, transitions: Sequence[Transition]) -> None:
    changed = [(t.run, t.attributes) for t in transitions if t.attributes is not None]
    ATTRIBUTES.write(session, changed)


def _close_waits(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    closes = [(t.run, c.seq, c.event, c.how) for t in transitions for c in t.closes]
    if not closes:
        return True
    consumed = [(run, seq, event) for run, seq, event, how in closes if how is Closing.CONSUMED]
    bad = [(run, seq, event) for run, seq, event, how in closes if how is Closing.BAD]
    if not (_consume(session, consumed) and _take_off(session, bad)):
        return False
    late = [(run, seq) for run, seq, _, how in closes if how is Closing.TIMED_OUT]
    give_back(session, late, late=True)
    give_back(session, [(run, seq) for run, seq, _, how in closes if how is Closing.WITHDRAWN], late=False)
    return True


def _consume(session: Session, waits: Sequence[tuple[int, int, int | None]]) -> bool:
    if not waits:
        return True
    given = (json.dumps(waits),)
    closed = session.count(
        "apply.consume",
        "DELETE FROM waits WHERE key IN (SELECT w.key FROM json_each(?) t CROSS JOIN waits w "
        "ON w.run = t.value ->> 0 AND w.seq = t.value ->> 1 WHERE w.event = t.value ->> 2)",
        given,
    )
    session.run("apply.consumed", CONSUMED, given)
    return closed == len(waits)


def _take_off(session: Session, waits: Sequence[tuple[int, int, int | None]]) -> bool:
    if not waits:
        return True
    given = (json.dumps(waits),)
    session.run(
        "apply.bad.requeue",
        "INSERT INTO to_match (namespace, name, correlation_id) SELECT w.namespace, w.name, w.correlation_id FROM json_each(?) t "
        "CROSS JOIN waits w ON w.run = t.value ->> 0 AND w.seq = t.value ->> 1",
        given,
    )
    taken = session.count(
        "apply.bad",
        "UPDATE waits SET event = NULL FROM json_each(?) t WHERE waits.run = t.value ->> 0 AND waits.seq = t.value ->> 1 "
        "AND waits.event = t.value ->> 2",
        given,
    )
    session.run("apply.bad.event", BAD, given)
    return taken == len(waits)


def _open_waits(session: Session, transitions: Sequence[Transition], now: int) -> None:
    opens = [(t.run, w) for t in transitions for w in t.opens]
    if opens:
        rows = [(run, w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.include_late, now) for run, w in opens]
        WAITS.write(session, rows)
        QUEUED.write(session, [(run, w.name, w.correlation_id) for run, w in opens])


def _end(session: Session, ended: Sequence[Transition], now: int) -> None:
    runs = json.dumps([t.run for t in ended])
    sql = "SELECT key, started_at FROM runs WHERE key IN (SELECT value FROM json_each(?))"
    started: dict[int, int | None] = dict(session.run("apply.started", sql, (runs,)))
    ENDED.write(session, [(t.generation, now, t.result, t.failure, t.ended_by, started[t.run]) for t in ended])
    forget_attempts(session, [t.generation for t in ended])
    withdraw_all(session, [t.run for t in ended])
    tell_parents(session, [(t.run, t.status, t.result or t.failure) for t in ended if t.child and t.status in TERMINAL])
    parents = [t for t in ended if t.parent]  # what they were told just now is for the generation that ends
    leave_children(session, [t.generation for t in parents], [t.run for t in parents])
    leave_operations(session, [t.generation for t in ended if t.operates], now)
    leave_pools(session, [t.generation for t in ended if t.pooled])
    for t in ended:
        if t.begins is not None:
            session.run("apply.uncancelled", "UPDATE runs SET cancel_seq = 0, cancel_reason = '' WHERE key = ?", (t.run,))
            begin_generation(session, t.run, t.begins)


def forget_attempts(session: Session, generations: Sequence[int]) -> None:
    """Delete what is left of attempts once nothing can be attempted any more."""
    session.run("end.attempts", "DELETE FROM attempts WHERE generation IN (SELECT value FROM json_each(?))", (json.dumps(generations),))
