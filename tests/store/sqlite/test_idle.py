"""Looking for work takes no lock while there is none: an idle worker keeps nobody from writing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from romulus.core.machine import Change
from romulus.core.operations import NewIntent, OperationMark, OperationState, Protocol
from romulus.core.pools import NewPoolAttempt, PoolBeat
from romulus.core.record import HoldKind, Record
from romulus.core.requests import request_cancel
from romulus.core.transition import Verdict
from romulus.store import open_store
from romulus.store.contract import OperationsServed, Store
from tests.store.kit import HELD, LEASE, PENDING, SECOND, MovableHost, advance, again, claim, claimed, event, park, register

LOOKED = Protocol(idempotent=False, key_lifetime=None, settle=0, timeout=SECOND, has_lookup=True)
SERVED = OperationsServed(["default"], ["charge"], ["charge"])
LOOKS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "for runs": lambda store: claim(store, match_max=100),
    "for runs alone": lambda store: claim(store, alone=True),
    "for wakes": lambda store: store.pulse("w1"),
    "for matches": lambda store: store.match(100),
    "for children": lambda store: store.close_children(100, None),  # type: ignore[arg-type]
    "for dead workers": lambda store: store.sweep(100, PENDING),
    "for held runs": lambda store: store.reopen_held("default", [("order", "1", "3.11:here")], PENDING),
    "in pools": lambda store: store.take_pool("w1", "default", ["gpu"], ["charge"], 100, LEASE),
    "whether attempts are still wanted": lambda store: store.beat_pool([PoolBeat(1, 1)]),
    "for lost attempts": lambda store: store.lose_pool(100),
    "for operations": lambda store: store.take_operations("w1", "default", SERVED, 100, OperationState.UNKNOWN),
    "for queued operations": lambda store: store.take_queued("w1", "default", SERVED, 100),
    "for old events": lambda store: store.expire_events(60 * SECOND, 100),
}


async def with_what_is_not_for_it(store: Store, host: MovableHost) -> Record:
    """Fill a store with what "w1" has nothing to do with now; return a run that is parked, with work that is due later."""
    (await register(store, host, "dead", boot="before")).close()
    await store.mark_dead("dead")
    await store.send([event("e1")])
    await store.match(100)
    waiting, held = await claimed(store, host, "parked", "w2"), await claimed(store, host, "held", "w3")
    later = await store.now() + 3_600 * SECOND
    intent = NewIntent(2, "op-2", "charge", "d1", b"{}", LOOKED, OperationState.ARMED, 0)
    await store.apply([advance(waiting, intents=[intent], operates=True)])
    attempt = NewPoolAttempt(1, "gpu", "charge", "d1", b"{}", 1, later, None, None)
    unknown = OperationMark(2, OperationState.ARMED, OperationState.UNKNOWN, due=later)
    parked = park(await again(store, waiting), pools=[attempt], pooled=True, marks=[unknown], operates=True)
    hold = advance(held, change=Change.HOLD, status=HELD, hold=(HoldKind.CODE, "why"), excluded="3.11:here")
    assert await store.apply([parked, hold]) == [Verdict.APPLIED] * 2
    others = await claimed(store, host, "another's", "w4")
    await store.change("default", others.run.id, lambda run, _, now: request_cancel(run, "", now))
    await claimed(store, host, "its own", "w1")
    return waiting


@pytest.mark.parametrize("look", LOOKS)
async def test_a_look_takes_no_lock_while_nothing_is_there_for_its_worker(tmp_path: Path, host: MovableHost, look: str) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    parked = await with_what_is_not_for_it(store, host)
    points: list[str] = []
    host.at_point = points.append

    await LOOKS[look](store)

    host.at_point = None
    assert points
    assert "sqlite.begin" not in points
    assert (await again(store, parked)).run.owner is None
    await store.close()
