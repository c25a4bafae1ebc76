"""Storing events: deduplicated by their ID, queued for matching."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

from romulus.core.transition import EventClash, EventRefused, NewEvent, Received
from romulus.store.contract import UNMATCHED_MAX

from .rows import of_name
from .session import Session

Name: TypeAlias = tuple[str, str]  # namespace, event ID

# Arrival numbers are given in the order of the call, rows are written in the order of their IDs. What is new has to find room in its
# queue; two calls at once may each find the last of it.
SEND: Final[LiteralString] = f"""
WITH c AS MATERIALIZED (SELECT romulus.clock() AS now),
t AS MATERIALIZED (SELECT nextval('romulus.arrivals') AS arrival, n.* FROM unnest($1::text[], $2::text[],
    $3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS n (namespace, id, name, correlation_id, payload, digest)),
fresh AS MATERIALIZED (SELECT t.*, row_number() OVER (PARTITION BY namespace, name, correlation_id ORDER BY arrival) AS n FROM t
    WHERE (SELECT arrival FROM romulus.events {of_name("t.namespace", "t.id")}) IS NULL),
room AS MATERIALIZED (SELECT q.*, $7::bigint - (SELECT count(*) FROM (SELECT 1 FROM romulus.unmatched u WHERE u.namespace = q.namespace
    AND u.name = q.name AND u.correlation_id = q.correlation_id LIMIT $7) x) AS places
    FROM (SELECT DISTINCT namespace, name, correlation_id FROM fresh) q),
stored AS (INSERT INTO romulus.events (arrival, namespace, id, name, correlation_id, payload, digest, received_at)
    SELECT f.arrival, f.namespace, f.id, f.name, f.correlation_id, f.payload, f.digest, c.now
    FROM fresh f JOIN room r ON r.namespace = f.namespace AND r.name = f.name AND r.correlation_id = f.correlation_id CROSS JOIN c
    WHERE f.n <= r.places
    ORDER BY f.namespace, f.id ON CONFLICT (namespace, id) DO NOTHING RETURNING arrival, namespace, id, name, correlation_id),
waiting AS (INSERT INTO romulus.unmatched (namespace, name, correlation_id, arrival)
    SELECT namespace, name, correlation_id, arrival FROM stored),
queued AS (INSERT INTO romulus.to_match (namespace, name, correlation_id)
    SELECT namespace, name, correlation_id FROM stored ORDER BY arrival)
SELECT namespace, id FROM stored
"""
KNOWN: Final[LiteralString] = (
    "SELECT e.namespace, e.id, e.digest FROM unnest($1::text[], $2::text[]) n (namespace, id) "
    f"CROSS JOIN LATERAL (SELECT * FROM romulus.events {of_name('n.namespace', 'n.id')}) e"
)


async def send(session: Session, events: Sequence[NewEvent]) -> list[Received | EventClash | EventRefused]:
    """Store *events*; see `Store.send`."""
    first: dict[Name, NewEvent] = {}
    for event in events:
        first.setdefault(_name(event), event)
    stored = await _store(session, list(first.values()))
    digests = {name: event.digest for name, event in first.items() if name in stored}
    digests |= await _known(session, [event for name, event in first.items() if name not in stored])
    return [_answer(event, first[_name(event)] is event and _name(event) in stored, digests.get(_name(event))) for event in events]


def _name(event: NewEvent) -> Name:
    return event.namespace, event.event_id


def _answer(event: NewEvent, stored_now: bool, digest: bytes | None) -> Received | EventClash | EventRefused:
    if digest is None:
        return EventRefused(event.event_id, UNMATCHED_MAX)
    if digest != event.digest:
        return EventClash(event.event_id)
    return Received(event.event_id, duplicate=not stored_now)


async def _store(session: Session, events: Sequence[NewEvent]) -> set[Name]:
    given = [
        [e.namespace for e in events], [e.event_id for e in events], [e.name for e in events], [e.correlation_id for e in events],
        [e.payload for e in events], [e.digest for e in events],
    ]  # fmt: skip
    return {(namespace, event_id) for namespace, event_id in await session.rows("send.events", SEND, *given, UNMATCHED_MAX)}


async def _known(session: Session, events: Sequence[NewEvent]) -> dict[Name, bytes]:
    if not events:
        return {}
    found = await session.rows("send.known", KNOWN, [e.namespace for e in events], [e.event_id for e in events])
    return {(namespace, event_id): bytes(digest) for namespace, event_id, digest in found}
