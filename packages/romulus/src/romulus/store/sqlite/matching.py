"""Events: stored first, matched after, each side's commit followed by a look at the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from romulus.core.transition import EventClash, EventRefused, NewEvent, Received
from romulus.store.contract import UNMATCHED_MAX

from .bulk import Bulk
from .retention import queue_of, room
from .session import Session

Name: TypeAlias = tuple[str, str]  # namespace, event ID
Pair: TypeAlias = tuple[int, int, int]  # wait, event, run

EVENTS: Final = Bulk(
    "send.events",
    "INSERT INTO events (namespace, id, name, correlation_id, payload, digest, received_at, state, run) ",
    9,
)
QUEUED: Final = Bulk("send.to_match", "INSERT INTO to_match (namespace, name, correlation_id) ", 3)
KNOWN: Final = (
    "SELECT json_group_array(json_array(e.namespace, e.id, hex(e.digest))) FROM json_each(?) t "
    "CROSS JOIN events e ON e.namespace = t.value ->> 0 AND e.id = t.value ->> 1"
)
# One row for each (namespace, name, correlation ID) in the queue's head: the oldest wait and event, and whether the pair is a plain one.
HEADS: Final = (
    "SELECT json_group_array(json_array(namespace, name, correlation_id, wait, event, (SELECT run FROM waits WHERE key = wait), "
    "EXISTS (SELECT 1 FROM late WHERE late.event = o.event) OR EXISTS (SELECT 1 FROM waits w WHERE w.namespace = o.namespace "
    "AND w.name = o.name AND w.correlation_id = o.correlation_id AND w.event IS NULL AND w.shared))) FROM ("
    "SELECT q.namespace, q.name, q.correlation_id, "
    "(SELECT min(w.key) FROM waits w WHERE w.namespace = q.namespace AND w.name = q.name AND w.correlation_id = q.correlation_id "
    "AND w.event IS NULL) AS wait, "
    "(SELECT min(e.arrival) FROM events e WHERE e.namespace = q.namespace AND e.name = q.name AND e.correlation_id = q.correlation_id "
    "AND e.state = 'unmatched') AS event "
    "FROM (SELECT DISTINCT namespace, name, correlation_id FROM to_match WHERE key <= ?) q) o "
    "WHERE wait IS NOT NULL AND event IS NOT NULL"
)
HEAD: Final = "SELECT max(key), count(*) FROM (SELECT key FROM to_match ORDER BY key LIMIT ?)"
OFFERED: Final = (
    "SELECT w.key, w.run, w.shared FROM waits w WHERE w.namespace = ?1 AND w.name = ?2 AND w.correlation_id = ?3 AND w.event IS NULL "
    "AND (w.include_late OR NOT EXISTS (SELECT 1 FROM late l WHERE l.event = ?4 AND l.run = w.run)) ORDER BY w.key"
)
UNMATCHED: Final = (
    "SELECT arrival FROM events WHERE namespace = ? AND name = ? AND correlation_id = ? AND state = 'unmatched' ORDER BY arrival LIMIT ?"
)
MATCH: Final = "UPDATE waits SET event = t.value ->> 1 FROM json_each(?) t WHERE waits.key = t.value ->> 0 AND waits.event IS NULL"
MATCHED: Final = "UPDATE events SET state = 'matched', run = t.value ->> 2 FROM json_each(?) t WHERE events.arrival = t.value ->> 1"
WAKE: Final = "INSERT INTO wakes (run) SELECT value ->> 2 FROM json_each(?)"


class Heads(NamedTuple):
    """What stands at the head of one queue of waits and of events."""

    namespace: str
    name: str
    correlation_id: str
    wait: int
    event: int
    run: int
    odd: int  # the event lost before, or a shared wait is open: which waits are offered it has to be looked at


def send(
    session: Session, events: Sequence[NewEvent], now: int, *, taker: int | None = None
) -> list[Received | EventClash | EventRefused]:  # fmt: skip
    """Store *events* inside the open transaction; see `Store.send`. *taker*: the run that they are given to, instead of being queued."""
    known = _known(session, events)
    left = room(session, [event for event in events if (event.namespace, event.event_id) not in known], UNMATCHED_MAX)
    fresh: list[NewEvent] = []
    answers: list[Received | EventClash | EventRefused] = []
    for event in events:
        digest = known.get((event.namespace, event.event_id), b"")
        if digest:
            answers.append(Received(event.event_id, duplicate=True) if digest == event.digest else EventClash(event.event_id))
        elif left[queue_of(event)] <= 0:
            answers.append(EventRefused(event.event_id, UNMATCHED_MAX))
        else:
            known[event.namespace, event.event_id] = event.digest
            left[queue_of(event)] -= 1
            fresh.append(event)
            answers.append(Received(event.event_id, duplicate=False))
    state = "unmatched" if taker is None else "matched"
    EVENTS.write(session, [(e.namespace, e.event_id, e.name, e.correlation_id, e.payload, e.digest, now, state, taker) for e in fresh])
    if taker is None:
        QUEUED.write(session, [(e.namespace, e.name, e.correlation_id) for e in fresh])
    return answers


def match(session: Session, limit: int) -> int:
    """Match what up to *limit* queue rows speak of; see `Store.match`."""
    if not session.read(lambda s: s.run("match.look", "SELECT 1 FROM to_match LIMIT 1")):
        return 0
    return session.write(lambda s, _: match_within(s, limit))


def match_within(session: Session, limit: int) -> int:
    """Match inside the open transaction what up to *limit* queue rows speak of; return how many there were."""
    ((last, consumed),) = session.run("match.head", HEAD, (limit,))
    if not consumed:
        return 0
    for heads in _match_plain(session, last):
        _match_odd(session, heads, limit)
    session.run("match.consumed", "DELETE FROM to_match WHERE key <= ?", (last,))
    return int(consumed)


def _known(session: Session, events: Sequence[NewEvent]) -> dict[Name, bytes]:
    found = session.value("send.known", KNOWN, (json.dumps([(e.namespace, e.event_id) for e in events]),))
    return {(namespace, event_id): bytes.fromhex(digest) for namespace, event_id, digest in json.loads(found)}


def _match_plain(session: Session, last: int) -> list[Heads]:
    """Pair oldest with oldest, for all queues at once, until no plain pair is left; return the queues that are not plain."""
    while True:
        found = [Heads(*row) for row in json.loads(session.value("match.heads", HEADS, (last,)))]
        plain: list[Pair] = [(h.wait, h.event, h.run) for h in found if not h.odd]
        if not plain:
            return found
        _write(session, plain)


def _match_odd(session: Session, heads: Heads, limit: int) -> None:
    """Offer each event of one queue to every shared wait and to the oldest other one, leaving out runs it came too late for."""
    where = (heads.namespace, heads.name, heads.correlation_id)
    for (event,) in session.run("match.events", UNMATCHED, (*where, limit)):
        offered = session.run("match.offered", OFFERED, (*where, event))
        takers = [(key, run) for key, run, shared in offered if shared] + [(key, run) for key, run, shared in offered if not shared][:1]
        if takers:
            _write(session, [(key, event, run) for key, run in takers])


def _write(session: Session, pairs: Sequence[Pair]) -> None:
    given = (json.dumps(pairs),)
    session.run("match.waits", MATCH, given)
    session.run("match.matched", MATCHED, given)
    session.run("match.wakes", WAKE, given)
