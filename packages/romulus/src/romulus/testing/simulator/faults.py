"""A store that fails as real ones do: refuses, answers nothing, tells late, twice or not at all. The rows are the real store's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.machine import RunStatus
from romulus.core.pools import PoolReport
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import ClaimRequest, Claims, Transaction
from romulus.store.hub import Hub, Notice, Ready

from .host import SimHost

WRITES = frozenset(
    {
        "claim",
        "match",
        "pulse",
        "sweep",
        "reclaim",
        "register",
        "reopen_held",
        "mark_stopping",
        "mark_dead",
        "deregister",
        "take_operations",
        "take_queued",
        "report",
    }
)
RELATED = frozenset({"close_children", "take_pool", "beat_pool", "lose_pool"})  # of children and pools
FAULTY = WRITES | {"history", "workers", "operations_of"}
LATE_MAX = 400_000  # µs until a commit whose answer was lost is applied after all


@dataclass(slots=True)
class Rates:
    """How often each fault happens, as a share of the calls; all of them 0 once the scenario lets the world calm down."""

    unavailable: float = 0.0
    unknown: float = 0.0  # the answer to a commit is lost: applied, not applied, or applied later
    dropped: float = 0.0  # of wake-ups
    doubled: float = 0.0  # of wake-ups and matches
    unanswered: str = ""  # name of a call that is carried out and whose answer is always lost
    probes: float = 0.0  # forged reports with one stale guard each
    related: bool = False  # what is asked about children and pools fails too

    def calm(self) -> None:
        """End all faults."""
        self.unanswered = ""
        self.unavailable = self.unknown = self.dropped = self.doubled = self.probes = 0.0


class Audience(Protocol):
    """Who hears of what the store answers, and of commits elsewhere."""

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        ...

    def listen(self, notice: Notice) -> Notice:
        """Call *notice* at each commit of any process; the returned function ends that."""
        ...

    def evidence_of(self, transition: Transition) -> bool:
        """Return whether evidence of a refused transition is kept, or the run has as much as is kept."""
        ...

    def recorded(self, transition: Transition) -> bool:
        """Return whether a transition is the last of its run, or an entry bears its ID."""
        ...

    def was_reported(self, report: PoolReport) -> bool:
        """Return whether how an attempt in a pool ended is in the record."""
        ...

    def fail(self, what: str) -> None:
        """Note a promise that did not hold: the seed fails."""
        ...


class FaultyHub(Hub):
    """Pokes that come late, twice or never; claims in the commit of others that are not made, or have no answer."""

    def __init__(self, host: SimHost, random: Random, rates: Rates) -> None:
        super().__init__()
        self._host, self._random, self._rates = host, random, rates

    def poke(self, *, but: Ready | None = None) -> None:
        """Tell the workers, perhaps."""
        if self._random.random() < self._rates.dropped:
            return
        if self._random.random() < self._rates.doubled:
            self._host.call_later(self._random.randrange(200_000), super().poke)
        super().poke(but=but.worker if isinstance(but, Unsure) else but)

    @property
    def ready(self) -> list[Ready]:
        """Return the workers that claim in the commit of others this time: half of the times none does."""
        return [Unsure(worker, self._random, self._rates) for worker in super().ready] if self._random.randrange(2) else []


@dataclass(slots=True)
class Unsure:
    """A worker whose claim in the commit of others may get no answer, whatever became of it."""

    worker: Ready
    random: Random
    rates: Rates

    def request(self) -> tuple[ClaimRequest, RunStatus] | None:
        """Return what it would claim."""
        return self.worker.request()

    def waiting(self) -> AbstractContextManager[tuple[ClaimRequest, RunStatus] | None]:
        """Give what it would claim by a statement that is waited for."""
        return self.worker.waiting()

    def claimed(self, request: ClaimRequest, claims: Claims) -> object:
        """Give it what was claimed, or lose the answer."""
        return self.worker.doubt() if self.random.random() < self.rates.unknown else self.worker.claimed(request, claims)

    def doubt(self) -> object:
        """Tell that the commit had no answer."""
        return self.worker.doubt()


class FaultyStore:
    """Wraps a store of one process. What is not named here is the store's own."""

    def __init__(self, inner: Any, host: SimHost, random: Random, rates: Rates, audience: Audience) -> None:
        self._inner, self._host, self._random, self._rates, self._audience = inner, host, random, rates, audience
        self._late: set[asyncio.Task[Sequence[Verdict]]] = set()  # commits whose answer nobody waits for
        self.hub = inner.hub = FaultyHub(host, random, rates)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        return self._flaky(name, real) if name in FAULTY or (self._rates.related and name in RELATED) else real

    async def apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        """Write transitions, or lose the answer."""
        self._refuse("apply")
        await self._probe(transitions)
        if self._random.random() < self._rates.unknown:
            await self._lose(transitions)
        return await self._apply(transitions)

    async def report_pool(self, reports: Sequence[PoolReport]) -> Sequence[bool | None]:
        """Report how attempts ended, or lose the answer; now and then after forged reports, each with one stale guard."""
        if self._rates.related:
            self._refuse("report_pool")
            await self._probe_pools(reports)
        answer: Sequence[bool | None] = await self._inner.report_pool(reports)
        if self._rates.related and self._random.random() < self._rates.unknown:
            self._unknown("report_pool", "applied")
        return answer

    async def transaction(self) -> Any:
        """Begin a transaction whose commit may lose its answer."""
        self._refuse("transaction")
        return FaultyTransaction(await self._inner.transaction(), self)

    async def changes(self) -> AsyncIterator[None]:
        """Yield after commits of others: late, twice, or not at all."""
        told = asyncio.Event()
        end = self._audience.listen(lambda: self._hear(told))
        try:
            while True:
                await told.wait()
                told.clear()
                yield
        finally:
            end()

    # ---- inside ----------------------------------------------------------------------------

    def lost(self) -> bool:
        """Return whether the answer to the next commit is lost."""
        return self._random.random() < self._rates.unknown

    def _hear(self, told: asyncio.Event) -> None:
        if self._random.random() >= self._rates.dropped:
            self._host.call_later(self._random.randrange(20_000), told.set)

    def _flaky(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **more: Any) -> Any:
            self._refuse(name)
            lost = name in WRITES | RELATED and (name == self._rates.unanswered or self._random.random() < self._rates.unknown / 4)
            if lost and name != self._rates.unanswered and self._random.random() < 0.5:
                self._unknown(name, "not applied")
            answer = await real(*args, **more)
            if lost:
                self._unknown(name, "applied")
            if name in ("match", "pulse") and self._random.random() < self._rates.doubled:
                again = await real(*args)
                return answer + again if name == "match" else [*answer, *again]
            return answer

        return call

    def _refuse(self, name: str) -> None:
        if self._random.random() < self._rates.unavailable:
            self._audience.note(f"{name}: the store is unavailable")
            raise StoreUnavailable(f"simulated: {name} failed")

    def _unknown(self, name: str, fate: str) -> None:
        self._audience.note(f"{name}: the answer is lost, {fate}")
        raise CommitUnknown(f"simulated: the connection was lost during {name}")

    async def _apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        verdicts: Sequence[Verdict] = await self._inner.apply(transitions)
        for transition, verdict in zip(transitions, verdicts, strict=True):
            self._note(transition, verdict)
        return verdicts

    def _note(self, transition: Transition, verdict: Verdict) -> None:
        if verdict is Verdict.APPLIED:
            return
        self._audience.note(f"{transition.run_id}: {transition.change} refused")
        if self._audience.recorded(transition):
            self._audience.fail(f"transition {transition.id} is in the record and is refused when it is sent again")
        elif not self._audience.evidence_of(transition):
            self._audience.fail(f"transition {transition.id} was refused and no evidence of it is kept")

    async def _lose(self, transitions: Sequence[Transition]) -> None:
        """Lose the answer: the commit was applied, was not, or will be."""
        fate = self._random.choice(("applied", "not applied", "applied later"))
        self._audience.note(f"apply: the answer is lost, {fate}")
        if fate == "applied":
            await self._apply(transitions)
        elif fate == "applied later":
            self._host.call_later(self._random.randrange(LATE_MAX), self._later, transitions)
        raise CommitUnknown("simulated: the connection was lost at COMMIT")

    def _later(self, transitions: Sequence[Transition]) -> None:
        self._late.add(self._host.spawn(self._apply(transitions), name="late commit"))

    async def _probe(self, transitions: Sequence[Transition]) -> None:
        """Send forged reports, each with one stale guard: none may change anything."""
        if self._random.random() >= self._rates.probes:
            return
        true = transitions[self._random.randrange(len(transitions))]
        for forged in forgeries(true, self._host):
            (verdict,) = await self._inner.apply([forged])
            if verdict is Verdict.APPLIED:
                self._audience.fail(f"a report was applied although its {_difference(true, forged)} is stale")

    async def _probe_pools(self, reports: Sequence[PoolReport]) -> None:
        for true in reports:
            if self._random.random() < self._rates.probes:
                again = self._audience.was_reported(true)  # the same report is answered alike, whoever sends it
                for forged in (replace(true, fence=true.fence - 1), replace(true, owner=true.owner + "x")):
                    if (await self._inner.report_pool([forged]))[0] and not again:
                        self._audience.fail("a report of a pool's attempt was applied although its fence or owner is stale")


class FaultyTransaction:
    """The transaction of a transactional step, whose commit may lose its answer."""

    def __init__(self, inner: Transaction, store: FaultyStore) -> None:
        self._inner, self._store = inner, store
        self.connection = inner.connection

    async def ready(self) -> None:
        """Check that it can be committed."""
        await self._inner.ready()

    async def commit(self, transition: Transition) -> Verdict:
        """Commit, and perhaps lose the answer."""
        lost = self._store.lost()
        if lost and self._store.lost():
            await self._inner.rollback()
            raise CommitUnknown("simulated: the connection was lost before COMMIT")
        verdict = await self._inner.commit(transition)
        if lost:
            raise CommitUnknown("simulated: the connection was lost after COMMIT")
        return verdict

    async def rollback(self) -> bool:
        """Undo everything that is not committed."""
        return await self._inner.rollback()


def forgeries(true: Transition, host: SimHost) -> list[Transition]:
    """Return copies of a transition under other IDs, each with one guard that does not hold."""
    other = host.random_bits(62) | 1 << 62
    forged = [
        replace(true, id=other, owner=true.owner + "x", entries=_renamed(true, other)),
        replace(true, id=other + 1, fence=true.fence - 1, entries=_renamed(true, other + 1)),
        replace(true, id=other + 2, revision=true.revision - 1, entries=_renamed(true, other + 2)),
        replace(true, id=other + 3, not_before=host.wall() + 10_000_000, entries=_renamed(true, other + 3)),
    ]
    if true.taken:
        forged.append(replace(true, id=other + 5, taken=[*true.taken, -1], entries=_renamed(true, other + 5)))
    if true.cancel_seq is not None:
        forged.append(replace(true, id=other + 4, cancel_seq=true.cancel_seq - 1, entries=_renamed(true, other + 4)))
    return forged


def _renamed(true: Transition, other: int) -> list[Any]:
    return [entry._replace(transition=other) for entry in true.entries]


def _difference(true: Transition, forged: Transition) -> str:
    names = ("owner", "fence", "revision", "not_before", "cancel_seq", "taken")
    return ", ".join(name for name in names if getattr(true, name) != getattr(forged, name))
