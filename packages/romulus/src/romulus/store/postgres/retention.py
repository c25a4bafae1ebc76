"""How long events are kept: the old ones are deleted under the locks of their queues, so that none is matched while it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from .matching import Queue
from .session import Session

# Arrival numbers grow with time: what lies before the first event that is kept is the only part that is looked at.
EXPIRED: Final[LiteralString] = (
    "SELECT e.arrival, e.namespace, e.name, e.correlation_id FROM romulus.events e, (SELECT romulus.clock() - $1::bigint "
    "AS before OFFSET 0) c "
    "WHERE e.arrival < coalesce((SELECT f.arrival FROM romulus.events f WHERE f.received_at >= c.before ORDER BY f.arrival LIMIT 1), "
    "9223372036854775807) AND e.received_at < c.before AND NOT EXISTS (SELECT 1 FROM romulus.waits w WHERE w.event = e.arrival) "
    "ORDER BY e.arrival LIMIT $2"
)
DELETE: Final[LiteralString] = (
    "WITH gone AS (DELETE FROM romulus.events e WHERE e.arrival = ANY($1::bigint[]) "
    "AND NOT EXISTS (SELECT 1 FROM romulus.waits w WHERE w.event = e.arrival) RETURNING e.arrival, e.namespace, e.name, e.correlation_id), "
    "queue AS (DELETE FROM romulus.unmatched u USING gone g WHERE u.namespace = g.namespace AND u.name = g.name "
    "AND u.correlation_id = g.correlation_id AND u.arrival = g.arrival), "
    "returned AS (DELETE FROM romulus.to_match t USING gone g WHERE t.namespace = g.namespace AND t.name = g.name "
    "AND t.correlation_id = g.correlation_id AND t.event = g.arrival), "
    "dealt AS (DELETE FROM romulus.dealt d USING gone g WHERE d.event = g.arrival) SELECT arrival FROM gone"
)


async def expired(session: Session, kept: int, limit: int) -> list[tuple[int, Queue]]:
    """Return up to *limit* events older than *kept* µs that no wait holds, with their queues."""
    rows = await session.rows("expire.look", EXPIRED, kept, limit)
    return [(arrival, (namespace, name, correlation)) for arrival, namespace, name, correlation in rows]


async def expire(session: Session, old: Sequence[tuple[int, Queue]]) -> int:
    """Delete those of *old* that no wait holds, inside the open transaction, which has the locks of their queues; return how many."""
    return len(await session.rows("expire.events", DELETE, [arrival for arrival, _ in old]))
