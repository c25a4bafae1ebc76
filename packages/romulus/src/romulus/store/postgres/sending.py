"""Storing events: deduplicated by their ID, queued for matching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

from romulus.core.transition import EventClash, NewEvent, Received

from .session import Session

Name: TypeAlias = tuple[str, str]  # namespace, event ID

# Arrival numbers are given in the order of the call, rows are written in the order of their IDs.
SEND: Final[LiteralString] = """
WITH c AS MATERIALIZED (SELECT romulus.clock() AS now),
t AS MATERIALIZED (SELECT nextval('romulus.arrivals') AS arrival, n.* FROM unnest($1::text[], $2::text[],
    $3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS n (namespace, id, name, correlation_id, payload, digest)),
stored AS (INSERT INTO romulus.events (arrival, namespace, id, name, correlation_id, payload, digest, received_at)
    SELECT t.*, c.now FROM (SELECT arrival, namespace, id, name, correlation_id, payload, digest FROM t) t, c
    ORDER BY namespace, id ON CONFLICT (namespace, id) DO NOTHING RETURNING arrival, namespace, id, name, correlation_id),
waiting AS (INSERT INTO romulus.unmatched (namespace, name, correlation_id, arrival) SELECT namespace, name, correlation_id, arrival FROM
    stored),
queued AS (INSERT INTO romulus.to_match (namespace, name, correlation_id) SELECT namespace, name, correlation_id FROM stored ORDER BY
    arrival)
SELECT namespace, id FROM stored
"""
KNOWN: Final[LiteralString] = (
    "SELECT e.namespace, e.id, e.digest FROM unnest($1::text[], $2::text[]) n (namespace, id) "
    "JOIN romulus.events e ON e.namespace = n.namespace AND e.id = n.id"
)


async def send(session: Session, events: Sequence[NewEvent]) -> list[Received | EventClash]:
    """Store *events*; see `Store.send`."""
    first: dict[Name, NewEvent] = {}
    for event in events:
        first.setdefault(_name(event), event)
    stored = await _store(session, list(first.values()))
    digests = {name: event.digest for name, event in first.items() if name in stored}
    digests |= await _known(session, [event for name, event in first.items() if name not in stored])
    return [_answer(event, first[_name(event)] is event and _name(event) in stored, digests[_name(event)]) for event in events]


def _name(event: NewEvent) -> Name:
    return event.namespace, event.event_id


def _answer(event: NewEvent, stored_now: bool, digest: bytes) -> Received | EventClash:
    if digest != event.digest:
        return EventClash(event.event_id)
    return Received(event.event_id, duplicate=not stored_now)


async def _store(session: Session, events: Sequence[NewEvent]) -> set[Name]:
    given = [
        [e.namespace for e in events], [e.event_id for e in events], [e.name for e in events], [e.correlation_id for e in events],
        [e.payload for e in events], [e.digest for e in events],
    ]  # fmt: skip
    return {(namespace, event_id) for namespace, event_id in await session.rows("send.events", SEND, *given)}


async def _known(session: Session, events: Sequence[NewEvent]) -> dict[Name, bytes]:
    if not events:
        return {}
    found = await session.rows("send.known", KNOWN, [e.namespace for e in events], [e.event_id for e in events])
    return {(namespace, event_id): bytes(digest) for namespace, event_id, digest in found}
