"""Giving a lone event straight to the parked run that waits for it, claimed by a worker here: stored, matched and claimed in one statement.

It is the ordinary way made short where nobody else is concerned: one open wait in the queue, no other event in it, a run that this worker
would claim. In every other case the event is stored and queued as others are, by the same statement. No lock of the queue is taken: until
the commit no matcher sees the event, and the wait's row is locked. What the statement reads is older than its locks, so it gives the
event only if the versions that it has locked of the run and its wait are the ones it sees (`ctid`, see `taking`). Nothing it locks is
waited for; it waits for whoever writes an event of the same ID, and that before it locks anything.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from dataclasses import replace
from typing import Final, LiteralString, NamedTuple

from romulus.core.machine import RunStatus
from romulus.core.record import Deposit, Record
from romulus.core.transition import NewEvent
from romulus.store.contract import UNMATCHED_MAX, ClaimRequest

from .looking import SERVED
from .rows import RECORD, record_of, served
from .schema import VERSION
from .session import Session
from .taking import claimed, live

# Parameters: 1-6 the event, 7 room of a queue, 8 owner, 9 now, 10 status, 11 digests of others, 12 losses, 13-15 serves, 16 schema.
OF_QUEUE: Final[LiteralString] = "namespace = $1 AND name = $3 AND correlation_id = $4"
DELIVER: Final[LiteralString] = f"""
WITH before AS MATERIALIZED (SELECT count(*) AS n FROM (SELECT 1 FROM romulus.unmatched WHERE {OF_QUEUE} LIMIT $7) x),
stored AS (INSERT INTO romulus.events (arrival, namespace, id, name, correlation_id, payload, digest, received_at)
    SELECT nextval('romulus.arrivals'), $1, $2, $3, $4, $5, $6, romulus.clock() FROM before WHERE n < $7
    ON CONFLICT (namespace, id) DO NOTHING RETURNING arrival, received_at),
w AS MATERIALIZED (SELECT run, seq, ctid AS at FROM romulus.waits WHERE {OF_QUEUE} AND event IS NULL ORDER BY key LIMIT 2),
one AS MATERIALIZED (SELECT w.run, w.seq, w.at, e.arrival FROM stored e CROSS JOIN w WHERE (SELECT count(*) FROM w) = 1
    AND (SELECT n FROM before) = 0 AND NOT EXISTS (SELECT 1 FROM romulus.to_match WHERE {OF_QUEUE} AND event IS NOT NULL)
    AND {live("$8")} AND (SELECT value::integer FROM romulus.meta WHERE name = 'compatible') <= $16),
l AS MATERIALIZED (SELECT r.key, r.ctid AS at, r.generation, x.seq, x.ctid AS wait_at FROM romulus.runs r
    JOIN romulus.waits x ON x.run = r.key WHERE r.key = ANY(ARRAY(SELECT run FROM one)) AND x.seq = ANY(ARRAY(SELECT seq FROM one))
    AND r.owner IS NULL AND r.status = 'waiting' AND r.digest <> ALL($11::text[]) AND r.losses < $12
    AND EXISTS (SELECT 1 FROM unnest($13::text[], $14::text[], $15::text[]) {SERVED})
    FOR UPDATE OF r, x SKIP LOCKED),
given AS MATERIALIZED (SELECT l.key, l.generation, l.seq, o.arrival FROM l JOIN one o ON o.at = l.wait_at
    CROSS JOIN LATERAL (SELECT ctid AS at FROM romulus.runs WHERE key = l.key OFFSET 0) r WHERE r.at = l.at),
taken AS (UPDATE romulus.runs r SET {claimed("$8", "$9", "$10")} FROM given l
    CROSS JOIN LATERAL (SELECT * FROM romulus.generations WHERE run = l.key AND number = l.generation OFFSET 0) g
    WHERE r.key = l.key RETURNING {RECORD}),
matched AS (UPDATE romulus.waits x SET event = l.arrival FROM given l WHERE x.run = l.key AND x.seq = l.seq),
waiting AS (INSERT INTO romulus.unmatched (namespace, name, correlation_id, arrival)
    SELECT $1, $3, $4, arrival FROM stored WHERE NOT EXISTS (SELECT 1 FROM given)),
queued AS (INSERT INTO romulus.to_match (namespace, name, correlation_id)
    SELECT $1, $3, $4 FROM stored WHERE NOT EXISTS (SELECT 1 FROM given))
SELECT e.arrival, e.received_at, (SELECT seq FROM given), t.* FROM stored e LEFT JOIN taken t ON true
"""


class Delivered(NamedTuple):
    """An event that was stored."""

    record: Record | None  # the run that has it, claimed; None: the event waits to be matched


async def deliver(session: Session, event: NewEvent, request: ClaimRequest, to: RunStatus, now: int) -> Delivered | None:
    """Store *event* and give it to the run that waits for it, if *request* would claim that; None: it was not stored.

    *now*: store µs, the time of the claim.
    """
    row = await session.row(
        "send.delivered", DELIVER, event.namespace, event.event_id, event.name, event.correlation_id, event.payload, event.digest,
        UNMATCHED_MAX, request.owner, now, to.value, list(request.others), request.alone_after, *served(request.serves), VERSION,
    )  # fmt: skip
    if row is None:
        return None
    arrival, received_at, seq, *claimed_run = row
    return Delivered(None if seq is None else _with(record_of(claimed_run), seq, _deposit(event, arrival, received_at)))


def _deposit(event: NewEvent, arrival: int, received_at: int) -> Deposit:
    return Deposit(arrival, event.event_id, event.name, event.correlation_id, event.payload, received_at)


def _with(record: Record, seq: int, deposit: Deposit) -> Record:
    """Return *record*, which was read before the event was given, with the event at its wait."""
    record.waits = [replace(wait, deposit=deposit) if wait.seq == seq else wait for wait in record.waits]
    return record
