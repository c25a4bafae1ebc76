"""What a pool's worker does: claims attempts while it has slots, works them, keeps their heartbeats, and reports how they end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial

from romulus.core.commands import Command, StepCall
from romulus.core.duration import to_datetime
from romulus.core.instance import RunInfo
from romulus.core.pools import DEFAULT_POOL, PoolAttempt, PoolBeat, PoolEnd, PoolReport, PoolUnread
from romulus.core.record import AttemptRow, Kind
from romulus.core.seeds import Seeds
from romulus.worker.aside import Aside, reason_of
from romulus.worker.beats import last_details
from romulus.worker.engine import Engine
from romulus.worker.patience import SURPRISES_MAX, forever, patient
from romulus.worker.pause import pause

from .attempt import PoolWork

log = logging.getLogger("romulus.worker")


class PoolWorker:
    """Two loops: one claims, one keeps what is claimed; each attempt's body runs as any other attempt's does, in a slot of the worker."""

    def __init__(self, engine: Engine, pools: Sequence[str]) -> None:
        self._engine = engine
        self.pools = tuple(pool for pool in pools if pool != DEFAULT_POOL)
        self._steps = tuple(name for name, spec in engine.registry.steps.items() if not spec.transaction)
        self.working: set[PoolWork] = set()
        self.held: tuple[int, ...] = ()  # keys of the attempts whose leases are renewed; read from the lease's thread
        self._outbox: deque[PoolReport] = deque()  # how attempts ended, not stored yet
        self._sending: asyncio.Task[None] | None = None
        self._poked, self._beaten = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._beginning = 0  # claimed, to be begun in the loop's next callbacks
        self._beat_at = 0  # host's monotonic µs of the last look at what is claimed
        self._aside = Aside()

    # ---- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, if the worker serves a pool."""
        if self.pools and self._steps:
            host, poll = self._engine.host, self._engine.settings.poll
            self._tasks = [
                host.spawn(forever(host, poll, "claiming from pools", self._pass), name="romulus-pools"),
                host.spawn(forever(host, poll, "keeping attempts of pools", self._keep), name="romulus-pool-beats"),
            ]

    async def stop(self) -> None:
        """Claim nothing more; report what has ended, and what is cut off. If the store is away, the leases run out."""
        for work in tuple(self.working):
            self._report(work, PoolEnd.CUT if work.begun else PoolEnd.UNBEGUN, b"")
            self._forget(work)
        await self._end()
        if self._outbox:
            try:
                await self._engine.store.report_pool(list(self._outbox))
            except Exception as error:  # noqa: BLE001  whatever it is, the worker stops
                log.warning("how %d attempts of pools ended could not be reported: %s", len(self._outbox), error)
            self._outbox.clear()

    async def crash(self) -> None:
        """End without telling the store anything."""
        self.drop()
        await self._end()

    async def _end(self) -> None:
        tasks = [*self._tasks] if self._sending is None else [*self._tasks, self._sending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def drop(self) -> None:
        """Give up every attempt: the claims are void, or are about to be."""
        for work in tuple(self.working):
            self._forget(work)

    def poke(self) -> None:
        """Look soon."""
        self._poked.set()

    @property
    def busy(self) -> bool:
        """Return whether an attempt is worked or about to be reported."""
        return bool(self.working or self._outbox)

    # ---- claiming --------------------------------------------------------------------------------

    async def _pass(self) -> None:
        self._poked.clear()
        engine = self._engine
        room = self._room()
        due = await self._take(room) if room > 0 and not engine.owner.stopping and engine.owner.may_arm() else None
        wait = engine.settings.poll if due is None else min(max(due - engine.store.estimated_now(), 0), engine.settings.poll)
        if wait > 0 or self._room() <= 0:
            await self._until(self._poked, max(wait, 1))

    async def _take(self, room: int) -> int | None:
        engine = self._engine
        owner = engine.owner
        aside = self._aside.keys(engine.host.monotonic())
        steps = self._aside.other_steps(self._steps)
        taken = await engine.store.take_pool(owner.id, owner.namespace, self.pools, steps, room, engine.settings.lease, aside)
        self._beginning += len(taken.rows)
        for attempt in taken.rows:
            engine.host.call_soon(self._begin, attempt)
        return taken.next_due

    def _room(self) -> int:
        """Return how many more attempts may be claimed: free slots, but for those that claimed ones are about to take."""
        return self._engine.slots.free - self._beginning

    def _begin(self, attempt: PoolAttempt) -> None:
        """Take the attempt up."""
        self._beginning -= 1
        work = self._work(attempt)
        self.working.add(work)
        self._hold()
        self._ready(work)

    def _ready(self, work: PoolWork) -> None:
        """Begin the body once there is a slot, unless the code or the codec here cannot read what it is given."""
        try:
            self._open(work)
        except Exception as error:  # noqa: BLE001  a validator of the user's may raise anything
            self._leave(work, error)
            return
        waiter = _Granted(self, work)
        if self._engine.slots.take():
            waiter.slot_granted()
        else:
            self._engine.slots.wait(waiter)

    def _open(self, work: PoolWork) -> None:
        attempt = work.attempt
        arguments = self._engine.registry.vault.open(attempt.arguments, f"arguments of step {attempt.step!r}")
        spec = replace(self._engine.registry.steps[attempt.step], timeout=attempt.timeout, heartbeat_timeout=attempt.heartbeat_timeout)
        work.command.detail = StepCall(spec, arguments, Context())
        spec.arguments.load(arguments)
        last_details(self._engine, work)

    def _leave(self, work: PoolWork, error: Exception) -> None:
        """Leave the attempt to others as it was: while workers are replaced one after another, or a key is not everywhere yet, some can."""
        attempt, engine = work.attempt, self._engine
        reason = reason_of(error)
        unread = PoolUnread(attempt.step, attempt.seq, attempt.number, attempt.generation, attempt.pool, reason)
        self._report(work, PoolEnd.UNREAD, b"", unread.detail())
        if self._aside.put(attempt.key, attempt.step, engine.host.monotonic() + engine.settings.unread_pause):
            log.warning(
                "step %r of run %r is left to other workers of pool %r, as whatever cannot be read here: %s",
                attempt.step, work.run_id, attempt.pool, reason,
            )  # fmt: skip

    def _work(self, attempt: PoolAttempt) -> PoolWork:
        """Return the attempt for the executor; its command has the arguments once they are opened."""
        info = RunInfo(
            attempt.run_id, attempt.workflow, attempt.version, to_datetime(attempt.started_at), attempt.namespace,
            attempt.number_of_generation, attempt.depth,
        )  # fmt: skip
        call = StepCall(self._engine.registry.steps[attempt.step], b"", Context())
        command = Command(attempt.seq, Kind.STEP, attempt.step, bytes.fromhex(attempt.digest), call, None)
        before = AttemptRow(attempt.seq, attempt.digest, attempt.number - 1, 0, 0, 0, b"", attempt.heartbeat, attempt.step)
        row = before if attempt.heartbeat else None
        seed = Seeds.parse(attempt.seeds).newest
        return PoolWork(attempt, command, attempt.number, row, info, seed, self._report, self._beat)

    # ---- keeping ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Store heartbeats and learn which attempts are no longer wanted: soon after a heartbeat, and now and then without one."""
        await self._until(self._beaten, self._engine.settings.lease // 4)
        since = self._engine.host.monotonic() - self._beat_at
        if since < self._engine.settings.beat_every:
            await self._until(asyncio.Event(), self._engine.settings.beat_every - since)
        self._beaten.clear()
        self._beat_at = self._engine.host.monotonic()
        works = [work for work in self.working if not work.withdrawn]
        if works:
            await self._ask(works)

    async def _ask(self, works: Sequence[PoolWork]) -> None:
        beats = [PoolBeat(w.attempt.key, w.attempt.fence, w.beaten, w.heartbeat or None) for w in works]
        for work in works:
            work.beaten = False
        for work, wanted in zip(works, await self._engine.store.beat_pool(beats), strict=True):
            if not wanted and work in self.working:
                self._forget(work)

    def _beat(self, work: PoolWork) -> None:
        self._engine.host.call_from_thread(self._beaten.set)

    def _forget(self, work: PoolWork) -> None:
        """Tell the body that nobody waits for its outcome any more."""
        self.working.discard(work)
        self._hold()
        if work.begun:
            self._engine.executor.withdraw(work)
        else:
            work.withdrawn = True  # its slot comes back when it is granted

    # ---- reporting -------------------------------------------------------------------------------

    def _report(self, work: PoolWork, end: PoolEnd, body: bytes, detail: str = "") -> None:
        if work not in self.working:
            return
        self.working.discard(work)
        attempt = work.attempt
        said = {"step": attempt.step, "seq": attempt.seq, "attempt": attempt.number, "pool": attempt.pool, "end": end}
        detail = detail or json.dumps(said)
        owner = self._engine.owner.id
        self._outbox.append(PoolReport(attempt.key, attempt.fence, attempt.run, owner, end, body, detail, work.heartbeat or None))
        if self._sending is None:
            self._sending = self._engine.host.spawn(self._send(), name="romulus-pool-reports")

    async def _send(self) -> None:
        """Report what has gathered, for certain: an outcome may be paid for. A report that comes too late is kept by the store.

        One that cannot be stored keeps the others from it no longer than it takes to find out, and its own claim is left to run out.
        """
        engine, at_once = self._engine, self._engine.settings.batch_max
        try:
            while self._outbox:
                reports = list(self._outbox)[:at_once]
                told = partial(engine.store.report_pool, reports)
                locked: list[PoolReport] = []
                try:
                    answers = await patient(engine.host, engine.settings.poll, told, surprises=SURPRISES_MAX)
                    locked = [report for report, answer in zip(reports, answers, strict=True) if answer is None]
                except Exception:
                    if len(reports) > 1:
                        at_once = 1
                        continue
                    log.exception("how an attempt ended cannot be stored, so it counts as lost: %s", reports[0].detail)
                for _ in reports:
                    self._outbox.popleft()
                self._outbox.extend(locked)
                if len(locked) == len(reports):
                    await pause(engine.host, engine.settings.poll)
                self._hold()
                self.poke()
        finally:
            self._sending = None
            engine.owner.attempt_over()

    def _hold(self) -> None:
        """Note whose leases are to be renewed: what is neither worked nor about to be reported is left to others."""
        self.held = (*(work.attempt.key for work in self.working), *(report.key for report in self._outbox))

    async def _until(self, event: asyncio.Event, pause: int) -> None:
        """Wait for *event*, at most *pause* µs."""
        handle = self._engine.host.call_later(pause, event.set)
        try:
            await event.wait()
        finally:
            handle.cancel()


class _Granted:
    """Begins an attempt once it has a slot."""

    def __init__(self, pools: PoolWorker, work: PoolWork) -> None:
        self._pools, self._work = pools, work

    def slot_granted(self) -> None:
        """Begin, unless the attempt was given up meanwhile."""
        engine = self._pools._engine
        if self._work.withdrawn:
            engine.slots.give()
        else:
            engine.executor.begin(self._work)
