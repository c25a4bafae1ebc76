"""The outside of operations: a provider that counts its effects, and operations that are sent to it in every way there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeGuard

from romulus.authoring.operation import Operation, operation
from romulus.core.errors import NotSent, Rejected
from romulus.core.operations import Applied, LookupResult, NotApplied, Unknown
from romulus.core.retry import Retry

from .process import SimProcess
from .programs import Node
from .steps import POOL

SETTLE: Final = 400_000  # µs that a write may take to show in lookups
SHOWS: Final = 300_000  # µs that it takes
SLOW: Final = 1_400_000  # µs after which a slow provider applies a write: just within the timeout
TIMEOUT: Final = 1_500_000  # µs
EVER: Final = 1 << 62
LIFETIME: Final = 6_000_000  # µs after which a key is forgotten where it has a lifetime
LATE_S: Final = 60.0
SENDS_MAX: Final = 3
WAYS: Final = ("answer", "answer", "answer", "refuse", "unreachable", "lost before", "lost after", "slow", "slow and lost")
RETRY: Final = Retry(max_attempts=SENDS_MAX, initial=0.2, max_delay=1.0)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store has of an operation."""

    state: str = ""  # "": it is not recorded
    fence: int = 0
    may_leave_until: int = 0  # store µs


@dataclass(frozen=True, slots=True)
class Beginning:
    """A body that was begun."""

    operation: str
    fence: int
    at: int  # virtual µs
    checked_at: int  # virtual µs
    wall: int  # store µs
    process: SimProcess
    stands: Standing


@dataclass(slots=True)
class Emission:
    """A send that reached the provider, or will."""

    begun: Beginning
    label: str
    at: int  # virtual µs
    wall: int  # store µs
    applied_at: int | None  # virtual µs: when its effect happens; None: it has none
    stands: Standing  # of the operation at that time

    @property
    def operation(self) -> str:
        """The operation's ID."""
        return self.begun.operation


@dataclass(slots=True)
class Provider:
    """What the world was sent, in the order it happened."""

    now: Callable[[], int]
    wall: Callable[[], int]
    process: Callable[[], SimProcess]
    look: Callable[[str], Standing]  # at an operation in the store
    emissions: list[Emission] = field(default_factory=list[Emission])
    beginnings: list[Beginning] = field(default_factory=list[Beginning])
    asked: dict[str, int] = field(default_factory=dict[str, int])  # lookups, by operation

    def begin(self, op: Operation) -> Beginning:
        """Take note of a body that begins."""
        process = self.process()
        begun = Beginning(op.id, op.fence, self.now(), process.checked_at, self.wall(), process, self.look(op.id))
        self.beginnings.append(begun)
        return begun

    def tries(self, operation_id: str) -> int:
        """Return how many bodies of an operation were begun."""
        return sum(1 for each in self.beginnings if each.operation == operation_id)

    def emit(self, begun: Beginning, label: str, keyed: int, delay: int, effect: bool) -> None:
        """Take a send: under a key that is known for *keyed* µs since the first one has come, it has no effect of its own."""
        effects = self.effects(begun.operation)
        known = bool(effects) and self.now() - effects[0].at < keyed
        applied_at = self.now() + delay if effect and not known else None
        self.emissions.append(Emission(begun, label, self.now(), self.wall(), applied_at, self.look(begun.operation)))

    def effects(self, operation_id: str) -> list[Emission]:
        """Return the sends of an operation that have an effect, now or later."""
        return [each for each in self.emissions if each.operation == operation_id and each.applied_at is not None]

    def shows(self, operation_id: str) -> Emission | None:
        """Return an effect of the operation that lookups show by now."""
        visible = self.now() - SHOWS
        return next((each for each in self.effects(operation_id) if each.applied_at is not None and each.applied_at <= visible), None)


_active: list[Provider] = []


def provide(provider: Provider) -> None:
    """Make *provider* the one of the seed in progress."""
    _active[:] = [provider]


async def send(op: Operation, label: str, ways: list[str], millis: int, *, keyed: int = 0) -> str:
    """Send it in the way that the program wants of this try; the first byte leaves a moment after the last check."""
    provider = _active[-1]
    tries = provider.tries(op.id)
    begun = provider.begin(op)
    way = ways[tries] if tries < len(ways) else "answer"
    if way == "refuse" and not provider.effects(op.id):
        raise Rejected(label)
    if way == "unreachable":
        raise NotSent(label)
    await asyncio.sleep(0)
    provider.emit(begun, label, keyed, SLOW if way.startswith("slow") else 0, effect=way != "lost before")
    if way.endswith("killed"):
        begun.process.kill()
    await asyncio.sleep(LATE_S if "lost" in way else millis / 1000 + (SLOW / 1_000_000 if way == "slow" else 0))
    return label


def find(op: Operation, silent: int) -> LookupResult[str]:
    """Say what became of it; the first *silent* lookups get no answer."""
    provider = _active[-1]
    asked = provider.asked[op.id] = provider.asked.get(op.id, 0) + 1
    if asked <= silent:
        if asked % 2:
            raise ConnectionError("the provider is down")
        return Unknown("starting")
    shown = provider.shows(op.id)
    return NotApplied() if shown is None else Applied(shown.label)


@operation(timeout=TIMEOUT / 1_000_000, settle=SETTLE / 1_000_000, retry=RETRY, lookup_retry=RETRY)
async def looked_up(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that can be asked."""
    return await send(op, label, ways, millis)


@looked_up.lookup
async def find_looked_up(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> LookupResult[str]:
    """Ask it."""
    return find(op, silent)


@operation(timeout=TIMEOUT / 1_000_000, idempotent=True, retry=RETRY)
async def keyed(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that honours keys."""
    return await send(op, label, ways, millis, keyed=EVER)


@operation(timeout=TIMEOUT / 1_000_000, settle=SETTLE / 1_000_000, idempotent=True, retry=RETRY, lookup_retry=RETRY, on_cancel="abandon")
async def both(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that does both, for writes that may be abandoned."""
    return await send(op, label, ways, millis, keyed=EVER)


@both.lookup
async def find_both(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> LookupResult[str]:
    """Ask it."""
    return find(op, silent)


@operation(timeout=TIMEOUT / 1_000_000, retry=RETRY)
async def blind(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that does neither."""
    return await send(op, label, ways, millis)


@operation(timeout=TIMEOUT / 1_000_000, idempotent=True, key_lifetime=LIFETIME / 1_000_000, retry=RETRY)
async def fading(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that honours keys for a while."""
    return await send(op, label, ways, millis, keyed=LIFETIME)


@operation(timeout=TIMEOUT / 1_000_000, settle=SETTLE / 1_000_000, retry=RETRY, lookup_retry=RETRY, pool=POOL)
async def pooled(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that can be asked, by workers of a pool only."""
    return await send(op, label, ways, millis)


@pooled.lookup
async def find_pooled(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> LookupResult[str]:
    """Ask it."""
    return find(op, silent)


OPERATIONS: Final = {"looked_up": looked_up, "keyed": keyed, "both": both, "blind": blind, "fading": fading, "pooled": pooled}


def _is_node(part: Any) -> TypeGuard[Node]:
    return isinstance(part, list)


def with_writes(random: Random, node: Node) -> Node:
    """Return *node* with many of its steps exchanged for operations."""
    if node[:1] == ["step"] and random.random() < 0.7:
        ways = [random.choice(WAYS) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        return ["write", random.choice(list(OPERATIONS)), node[2], ways, random.choice((0, 0, 1, 9)), random.choice((0, 10, 300, 1200))]
    return [with_writes(random, part) if _is_node(part) else part for part in node]


async def write(kind: str, *given: Any) -> str:
    """Carry out a node of `with_writes` and say what came of it."""
    try:
        return await OPERATIONS[kind](*given)
    except Exception as error:  # noqa: BLE001 - whatever an operation raises is a result here
        return f"failed {type(error).__name__}"
