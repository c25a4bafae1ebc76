"""Looks for work: matches events, wakes owned runs, claims due ones, as soon as something says so and never by busy polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial

from romulus.core import requests
from romulus.core.errors import CommitUnknown
from romulus.core.machine import Change, RunStatus, after
from romulus.core.record import Record
from romulus.core.seeds import SEED_BYTES
from romulus.store.contract import ClaimRequest, Claims

from .ending import end
from .engine import Engine
from .memory import Memory
from .patience import forever
from .settings import SECOND

MATCH_MAX = 1_000  # rows of to_match a pass
ELSEWHERE_MAX = SECOND // 10  # µs that a look waits for a statement of others that claims for the worker
CLOSE_MAX = 200  # children asked to end in one transaction
CLAIMED = after(RunStatus.PENDING, Change.CLAIM)


class Claimer:
    """One loop: match, wake, claim; then sleep until poked, until the next run is due, or for the poll interval."""

    def __init__(
        self,
        engine: Engine,
        memory: Memory,
        take: Callable[[Record], object],
        *,
        keep: Callable[[Record], bool],
        loads: Callable[[int], bool],
        room: Callable[[], int],
    ) -> None:
        self._engine, self._memory, self._take, self._keep, self._loads, self._room = engine, memory, take, keep, loads, room
        self._given: set[int] = set()  # keys of runs claimed and about to be taken up
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = True  # until it starts
        self._over = False  # a stop waits for no claim any more
        self._context = Context()
        self._idle_at = engine.host.monotonic()  # µs: nothing was in memory then
        self._next = 0  # µs to sleep before the next look
        self._due: int | None = None  # store µs of the earliest look asked for
        self._starved = False  # due work was left for want of room
        self._elsewhere: asyncio.Future[None] | None = None  # a statement of others claims for this worker
        self.begun: int = 0  # looks, and statements of others that claim for this worker
        self.ended: int = 0
        self.alone: int | None = None  # key of the run that was claimed alone
        self.others: tuple[str, ...] = ()  # digests of other live workers

    def start(self) -> None:
        """Begin to claim."""
        self._stopped, self._context = False, copy_context()
        work = forever(self._engine.host, self._engine.settings.poll, "claiming", self._pass, over=lambda: self._stopped)
        self._task = self._engine.host.spawn(work, name="romulus-claimer")

    async def stop(self, *, at_once: bool = False) -> None:
        """Claim nothing more. A claim under way may be answered yet, unless *at_once*.

        A cancellation that gets lost on the way costs one more look, never the stop.
        """
        self._stopped = True
        self._poked.set()
        if self._task is not None:
            if not at_once:
                under_way = [waited for waited in (self._task, self._elsewhere) if waited is not None]
                await asyncio.wait(under_way, timeout=self._engine.settings.lease / 4 / SECOND)
            await end([self._task])
        self._over = True

    def request(self) -> tuple[ClaimRequest, RunStatus] | None:
        """Return what may be claimed in the commit of others; see `Ready`."""
        if self._stopped or self._given:  # what was claimed before is taken up first: until then there may be less room than it seems
            return None
        room = self._may_claim()
        return (self._request(room, alone=False), CLAIMED) if room > 0 else None

    @contextmanager
    def waiting(self) -> Generator[tuple[ClaimRequest, RunStatus] | None]:
        """Give what may be claimed by a statement of others, and look at nothing meanwhile, if it does not take long; see `Ready`.

        Nothing while a look is under way or waits, which has the same room, and while there is due work that this would come before.
        """
        wanted = None if self.begun != self.ended or self._starved else self.request()
        if wanted is None:
            yield None
            return
        over = self._elsewhere = asyncio.get_running_loop().create_future()
        self.begun += 1
        try:
            yield wanted
        finally:
            self.ended += 1
            self._elsewhere = None
            over.set_result(None)

    def claimed(self, request: ClaimRequest, claims: Claims) -> None:
        """Take what was claimed in the commit of others, and look soon if it saw more.

        What comes after the stop has ceased to wait for it is left to be given back with the worker's name.
        """
        if self._over:
            return
        self._context.run(self._taken, request, claims)  # not in the context of whoever started a run
        if claims.unmatched or claims.wakes or claims.closing or claims.alone:
            self.poke()
        self.due_at(claims.next_due)

    def doubt(self) -> None:
        """Runs may be claimed that nobody here knows of."""
        self._engine.owner.doubt()

    def holds(self, run: int) -> bool:
        """Return whether a run was claimed and is about to be taken up."""
        return run in self._given

    def poke(self) -> None:
        """Look soon."""
        self._poked.set()

    def due_at(self, due: int | None) -> None:
        """Look when *due* (store µs) has come, if that is before the look already planned."""
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self._engine.host.call_later(due - self._engine.store.estimated_now(), self.poke)

    def room_made(self) -> None:
        """Look again if due work was left for want of room."""
        if self._starved:
            self._poked.set()

    async def _pass(self) -> None:
        await self._wait(self._next)
        self._next = self._engine.settings.poll
        self._next = await self.look()

    async def look(self) -> int:
        """Match, claim, wake and close once; return µs until the next look that nobody asks for."""
        engine = self._engine
        self.begun += 1
        try:
            if self._elsewhere is not None:
                await asyncio.wait([self._elsewhere], timeout=ELSEWHERE_MAX / SECOND)
            seen = await self._claim() or await self._match()
            if seen.wakes and (self._memory.active or self._given):
                for record in await engine.store.pulse(engine.owner.id):
                    engine.host.call_soon(self._wake, record)
        except CommitUnknown:
            engine.owner.doubt()  # wakes may be taken, or runs claimed, that nobody here knows of
            raise
        finally:
            self.ended += 1
        if seen.unmatched:
            self._poked.set()  # until a pass finds nothing left to match
        if seen.closing and await engine.store.close_children(CLOSE_MAX, partial(requests.ask_child, self._seed)) == CLOSE_MAX:
            self._poked.set()
        poll = self._with_jitter(engine.settings.poll)
        if seen.next_due is None:
            return poll
        self._due = seen.next_due
        return max(min(poll, seen.next_due - engine.store.estimated_now()), 0)

    def _seed(self) -> bytes:
        return self._engine.host.random_bits(8 * SEED_BYTES).to_bytes(SEED_BYTES, "big")

    async def _match(self) -> Claims:
        """Match for others while nothing may be claimed here."""
        return Claims((), None, unmatched=await self._engine.store.match(MATCH_MAX) > 0)

    async def _claim(self) -> Claims | None:
        """Match what is queued and claim what there is room for; None: nothing may be claimed now."""
        elsewhere = self._elsewhere is not None  # a run may be claimed meanwhile
        room = self._may_claim() - elsewhere
        if room <= 0:
            return None
        request = self._request(room, alone=False)
        claims = await self._engine.store.claim(request, CLAIMED)
        self._taken(request, claims)
        if claims.alone and self._memory.active:
            await self._claim_in_company()
        elif claims.alone and not (claims.records or elsewhere):
            await self._claim_alone()
        return claims

    def _taken(self, request: ClaimRequest, claims: Claims) -> None:
        self._starved = len(claims.records) >= request.limit
        self._give(claims.records)
        if not self._memory.active:
            self._idle_at = self._engine.host.monotonic()

    def _may_claim(self) -> int:
        """Return how many runs may be claimed now."""
        owner = self._engine.owner
        if owner.stopping or not owner.may_arm():
            return 0
        if self.alone is not None:
            if self.alone in self._given or self.alone in self._memory.active or self._loads(self.alone):
                return 0
            self.alone = None
        room = min(self._room(), self._engine.settings.claim_max)
        self._starved = room <= 0
        return room

    async def _claim_alone(self) -> None:
        """With nothing else in memory, try one run that several workers have lost."""
        claims = await self._engine.store.claim(self._request(1, alone=True), CLAIMED)
        for record in claims.records:
            self.alone = record.run.key
        self._give(claims.records)

    async def _claim_in_company(self) -> None:
        """A worker that has not been idle for long tries a run that several have lost beside others: it must not starve."""
        now, patience = self._engine.host.monotonic(), self._engine.settings.alone_patience
        if now - self._idle_at > patience:
            self._idle_at = now - patience * 3 // 4  # the next one a quarter later
            self._give((await self._engine.store.claim(self._request(1, alone=True), CLAIMED)).records)

    def _give(self, records: Sequence[Record]) -> None:
        for record in records:
            self._given.add(record.run.key)
            self._engine.host.call_soon(self._hand_over, record)

    def _hand_over(self, record: Record) -> None:
        self._given.discard(record.run.key)
        self._take(record)

    def _request(self, limit: int, *, alone: bool) -> ClaimRequest:
        engine = self._engine
        return ClaimRequest(
            engine.owner.id, engine.owner.namespace, engine.owner.serves, limit,
            others=self.others, alone=alone, alone_after=engine.settings.alone_after, match_max=0 if alone else MATCH_MAX,
        )  # fmt: skip

    def _wake(self, record: Record) -> None:
        driver = self._memory.active.get(record.run.key)
        if not self._keep(record) and driver is not None and driver.run.fence == record.run.fence:
            driver.woken(record)

    def _with_jitter(self, interval: int) -> int:
        return int(interval * (0.75 + 0.5 * self._engine.random01()))

    async def _wait(self, pause: int) -> None:
        """Sleep for *pause* µs or until poked."""
        if pause > 0 and not self._poked.is_set():
            handle = self._engine.host.call_later(pause, self._poked.set)
            try:
                await self._poked.wait()
            finally:
                handle.cancel()
        else:
            await asyncio.sleep(0)  # what was claimed is taken up before the next look
        self._poked.clear()
        self._due = None
