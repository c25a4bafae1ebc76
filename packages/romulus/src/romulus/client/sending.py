"""Sending an event: its text checked, its payload made canonical, its receipt durable."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Any

from romulus.authoring.checks import check_correlation_id, check_event_name, check_id
from romulus.core.digests import event_digest
from romulus.core.errors import DefinitionError, EventConflict, SerializationError, TooManyEvents
from romulus.core.transition import EventClash, EventRefused, NewEvent
from romulus.core.values import ValueCodec

from .link import Link
from .records import EventReceipt

codecs_max = 256
PLAIN = frozenset({type(None), str, int, float, bool, list, tuple, dict})


async def send_event(link: Link, name: str, payload: object, correlation_id: str, event_id: str | None) -> EventReceipt:
    """Store an event and return its receipt; see `AsyncClient.send_event`."""
    check_event_name(name)
    check_correlation_id(correlation_id, "correlation ID")
    known = check_id(event_id, "event ID") if event_id is not None else await _new_id(link)
    plain = _dump(payload, f"payload of event {name!r}")
    stored = link.vault.seal(plain, f"payload of event {name!r}")
    event = NewEvent(link.namespace, name, correlation_id, known, stored, event_digest(name, correlation_id, plain))
    (answer,) = await (await link.store()).send([event])
    if isinstance(answer, EventClash):
        raise EventConflict(answer.event_id)
    if isinstance(answer, EventRefused):
        raise TooManyEvents(name, correlation_id, answer.waiting_max)
    return EventReceipt(answer.event_id, answer.duplicate)


def _dump(payload: object, where: str) -> bytes:
    """Encode plain JSON values as they are, others (a dataclass, a UUID, …) as their own class says."""
    kind: Any = payload.__class__
    try:
        return _codec(Any if kind in PLAIN else kind, where).dump(payload)[0]
    except DefinitionError as error:
        raise SerializationError(f"{where} is a {kind.__qualname__}, which cannot be stored; send what it stands for") from error


@lru_cache(maxsize=codecs_max)
def _codec(kind: Any, where: str) -> ValueCodec[Any]:
    """Building one costs more than all the rest of a send."""
    return ValueCodec(kind, where)


async def _new_id(link: Link) -> str:
    return str(uuid.UUID(int=await link.random_bits(128), version=4))
