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

SETTLE: Final = 400_000  # µs that a write may take to show in lookups
TIMEOUT_S: Final = 1.5
LATE_S: Final = 60.0
SENDS_MAX: Final = 3
WAYS: Final = ("answer", "answer", "answer", "refuse", "unreachable", "lost before", "lost after", "slow", "slow and lost")
RETRY: Final = Retry(max_attempts=SENDS_MAX, initial=0.2, max_delay=1.0)


@dataclass(slots=True)
class Emission:
    """A send that reached the provider, or will."""

    operation: str
    label: str
    at: int  # virtual µs
    process: SimProcess
    applied_at: int | None  # when its effect happens; None: it has none
    recorded: str  # the operation's state in the store at that time


@dataclass(slots=True)
class Provider:
    """What the world was sent, in the order it happened."""

    now: Callable[[], int]
    process: Callable[[], SimProcess]
    state: Callable[[str], str]  # of an operation in the store
    emissions: list[Emission] = field(default_factory=list[Emission])
    tries: dict[str, int] = field(default_factory=dict[str, int])  # bodies begun, by operation
    asked: dict[str, int] = field(default_factory=dict[str, int])  # lookups, by operation

    def begin(self, op: Operation) -> int:
        """Return how many bodies of the operation were begun before."""
        before = self.tries.get(op.id, 0)
        self.tries[op.id] = before + 1
        return before

    def emit(self, op: Operation, label: str, keyed: bool, delay: int, effect: bool) -> None:
        """Take a send: under a key that is known it has no effect of its own."""
        known = keyed and bool(self.effects(op.id))
        applied_at = self.now() + delay if effect and not known else None
        self.emissions.append(Emission(op.id, label, self.now(), self.process(), applied_at, self.state(op.id)))

    def effects(self, operation_id: str) -> list[Emission]:
        """Return the sends of an operation that have an effect, now or later."""
        return [each for each in self.emissions if each.operation == operation_id and each.applied_at is not None]

    def shows(self, operation_id: str) -> Emission | None:
        """Return an effect of the operation that lookups show by now."""
        visible = self.now() - SETTLE // 2
        return next((each for each in self.effects(operation_id) if each.applied_at is not None and each.applied_at <= visible), None)


_active: list[Provider] = []


def provide(provider: Provider) -> None:
    """Make *provider* the one of the seed in progress."""
    _active[:] = [provider]


async def send(op: Operation, label: str, ways: list[str], millis: int, *, keyed: bool) -> str:
    """Send it in the way that the program wants of this try."""
    provider = _active[-1]
    tries = provider.begin(op)
    way = ways[tries] if tries < len(ways) else "answer"
    if way == "refuse" and not provider.effects(op.id):
        raise Rejected(label)
    if way == "unreachable":
        raise NotSent(label)
    provider.emit(op, label, keyed, 1_000_000 if way.startswith("slow") else 0, effect=way != "lost before")
    await asyncio.sleep(LATE_S if "lost" in way else (millis + (1_000 if way == "slow" else 0)) / 1000)
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


@operation(timeout=TIMEOUT_S, settle=SETTLE / 1_000_000, retry=RETRY, lookup_retry=RETRY)
async def looked_up(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that can be asked."""
    return await send(op, label, ways, millis, keyed=False)


@looked_up.lookup
async def find_looked_up(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> LookupResult[str]:
    """Ask it."""
    return find(op, silent)


@operation(timeout=TIMEOUT_S, idempotent=True, retry=RETRY)
async def keyed(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that honours keys."""
    return await send(op, label, ways, millis, keyed=True)


@operation(timeout=TIMEOUT_S, settle=SETTLE / 1_000_000, idempotent=True, retry=RETRY, lookup_retry=RETRY, on_cancel="abandon")
async def both(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that does both, for writes that may be abandoned."""
    return await send(op, label, ways, millis, keyed=True)


@both.lookup
async def find_both(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> LookupResult[str]:
    """Ask it."""
    return find(op, silent)


@operation(timeout=TIMEOUT_S, retry=RETRY)
async def blind(op: Operation, label: str, ways: list[str], silent: int, millis: int) -> str:
    """A provider that does neither."""
    return await send(op, label, ways, millis, keyed=False)


OPERATIONS: Final = {"looked_up": looked_up, "keyed": keyed, "both": both, "blind": blind}


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
