"""How long events are kept, and how many may wait."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

from romulus.core.transition import NewEvent

from .session import Session

Queue: TypeAlias = tuple[str, str, str]  # namespace, name, correlation ID

BACKLOG: Final = (
    "SELECT json_group_array((SELECT count(*) FROM (SELECT 1 FROM events e WHERE e.namespace = t.value ->> 0 AND e.name = t.value ->> 1 "
    "AND e.correlation_id = t.value ->> 2 AND e.state = 'unmatched' LIMIT ?2))) FROM json_each(?1) t"
)
OLDEST: Final = "SELECT received_at FROM events ORDER BY arrival LIMIT 1"
# Arrival numbers grow with time: what lies before the first event that is kept is the only part that is looked at. What one run has
# consumed another may still hold: a shared event.
EXPIRED: Final = (
    "SELECT json_group_array(arrival) FROM (SELECT arrival FROM events WHERE arrival < coalesce((SELECT arrival FROM events "
    "WHERE received_at >= ?1 ORDER BY arrival LIMIT 1), 9223372036854775807) AND received_at < ?1 "
    "AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.event = events.arrival) ORDER BY arrival LIMIT ?2)"
)


def room(session: Session, events: Sequence[NewEvent], unmatched_max: int) -> Counter[Queue]:
    """Return how many more events may wait for each queue that *events* go to."""
    queues = list(dict.fromkeys(queue_of(event) for event in events))
    if not queues:
        return Counter()
    waiting = json.loads(session.value("send.backlog", BACKLOG, (json.dumps(queues), unmatched_max)))
    return Counter({queue: unmatched_max - count for queue, count in zip(queues, waiting, strict=True)})


def queue_of(event: NewEvent) -> Queue:
    """Return the queue that an event waits in."""
    return event.namespace, event.name, event.correlation_id


def expire(session: Session, kept: int, limit: int) -> int:
    """Delete events older than *kept* µs; see `Store.expire_events`. No lock is taken while there are none."""
    before = session.clock.now() - kept
    oldest = session.read(lambda s: s.value("expire.look", OLDEST))
    if oldest is None or oldest >= before:
        return 0
    return session.write(lambda s, _: _expire(s, before, limit))


def _expire(session: Session, before: int, limit: int) -> int:
    found: str = session.value("expire.find", EXPIRED, (before, limit))
    session.run("expire.late", "DELETE FROM late WHERE event IN (SELECT value FROM json_each(?))", (found,))
    return session.count("expire.events", "DELETE FROM events WHERE arrival IN (SELECT value FROM json_each(?))", (found,))
