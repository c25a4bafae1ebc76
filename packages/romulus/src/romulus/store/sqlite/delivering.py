"""Giving a lone event straight to the parked run that waits for it, claimed by a worker here: the queues are left out.

It is the ordinary way made short where nobody else is concerned: one open wait in the queue, no other event in it, a run that this
worker would claim, and nothing else to be matched, woken or claimed before it. All is read and written in one transaction, and a file
has one writer at a time.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.transition import EventClash, EventRefused, NewEvent, Received
from romulus.store.contract import ClaimRequest, Claims

from .claiming import FITS, SERVES, Look, claim_within, claims, look, serves_of, take
from .matching import send
from .session import Session

Answer: TypeAlias = Received | EventClash | EventRefused

# Bindings: 1 namespace, 2 serves (JSON), 3 name, 4 correlation ID, 5 losses, 6 digests of others (JSON), 7 owner.
OF_QUEUE: Final[LiteralString] = "namespace = ?1 AND name = ?3 AND correlation_id = ?4"
TAKER: Final[LiteralString] = (
    f"SELECT w.key, r.key FROM (SELECT key, run FROM waits WHERE {OF_QUEUE} AND event IS NULL ORDER BY key LIMIT 1) w "
    "CROSS JOIN runs r ON r.key = w.run WHERE r.owner IS NULL AND r.status = 'waiting' AND r.losses < ?5 "
    "AND r.digest NOT IN (SELECT value FROM json_each(?6)) "
    f"AND EXISTS (SELECT 1 FROM {SERVES} WHERE r.workflow = s.value ->> 0 AND r.version = s.value ->> 1 AND {FITS}) "
    f"AND NOT EXISTS (SELECT 1 FROM waits WHERE {OF_QUEUE} AND event IS NULL AND key > w.key) "
    f"AND NOT EXISTS (SELECT 1 FROM events WHERE {OF_QUEUE} AND state = 'unmatched') "
    "AND EXISTS (SELECT 1 FROM workers WHERE id = ?7 AND NOT dead)"
)
GIVE: Final[LiteralString] = "UPDATE waits SET event = (SELECT arrival FROM events WHERE namespace = ?1 AND id = ?2) WHERE key = ?3"


def send_and_claim(
    session: Session, events: Sequence[NewEvent], request: ClaimRequest, to: RunStatus, now: int
) -> tuple[list[Answer], Claims]:  # fmt: skip
    """Store *events* inside the open transaction and claim what is due then, the runs that they wake among it."""
    taker = _taker(session, events[0], request) if len(events) == 1 else None
    seen = look(session, request, now) if taker is not None else None
    if taker is None or seen is None or _others(seen, now):
        return send(session, events, now), claim_within(session, request, to, now, unmatched=True)
    wait, run = taker
    answers = send(session, events, now, taker=run)
    if not _is_stored(answers[0]):
        return answers, claims((), seen, request, now)
    session.run("deliver.give", GIVE, (events[0].namespace, events[0].event_id, wait))
    return answers, claims(take(session, request, to, [run], now), seen, request, now)


def _taker(session: Session, event: NewEvent, request: ClaimRequest) -> tuple[int, int] | None:
    """Return the one wait that may have the event, and its run; None: there is no such, or others are concerned."""
    if event.namespace != request.namespace:
        return None
    others = json.dumps(list(request.others))
    given = (event.namespace, serves_of(request), event.name, event.correlation_id, request.alone_after, others, request.owner)
    found = session.run("deliver.taker", TAKER, given)
    return found[0] if found else None


def _others(seen: Look, now: int) -> bool:
    """Return whether something else is to be matched, woken or claimed first."""
    return bool(seen.unmatched or seen.asleep or (seen.next is not None and seen.next <= now))


def _is_stored(answer: Answer) -> bool:
    return isinstance(answer, Received) and not answer.duplicate
