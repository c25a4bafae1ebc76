"""A worker: registers, claims runs, advances them under its lease, and leaves nothing behind when it stops."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from romulus.authoring.refusal import install
from romulus.authoring.registry import Registry
from romulus.authoring.resource import ResourceSet
from romulus.core.errors import CommitUnknown, ConfigurationError, StoreUnavailable
from romulus.core.machine import RunStatus
from romulus.core.ports import Host
from romulus.core.record import HoldKind, Record, Run, WorkerRow
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected, Lease, Store

from .claiming import Claimer
from .committer import Committer
from .driver import RunDriver
from .ending import end
from .engine import Engine, Observer
from .executor import Executor
from .giveup import unopened
from .lease import LeaseKeeper
from .loader import Loader
from .maintenance import Maintenance
from .memory import Memory
from .operations import Operations, served_by
from .patience import ALWAYS, patient
from .pools import PoolWorker
from .salvage import finished, outcomes_alone
from .settings import WorkerSettings
from .slots import Slots
from .strays import Strays
from .transactional import Transactional
from .undelivered import Known
from .watchdog import Watchdog

log = logging.getLogger("romulus.worker")


class Worker:
    """Claims and advances runs of one namespace on one store, inside the running event loop."""

    def __init__(
        self,
        store: Store,
        host: Host,
        registry: Registry,
        *,
        namespace: str = "default",
        concurrency: int = 100,
        pools: Sequence[str] = ("default",),
        settings: WorkerSettings | None = None,
        resources: ResourceSet | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.store, self.host, self.registry = store, host, registry
        self.namespace, self.pools = namespace, tuple(dict.fromkeys(pools))
        self.id = self._fresh_id()
        self.serves: Sequence[tuple[str, str, str]] = [
            (name, version, digest) for (name, version), digest in registry.digests.items() if "default" in self.pools
        ]  # fmt: skip
        self.stopping = False
        self.engine = Engine(
            host, store, registry, self.settings, self, Slots(concurrency), Committer(host, store, self.settings),
            Watchdog(host, self.settings.activation_limit, self.settings.activation_landing), observer,
        )  # fmt: skip
        self.resources = resources or ResourceSet(registry.resources)
        self.engine.operations = Operations(self.engine, self.resources)
        self.engine.executor = Executor(self.engine, self.resources, Transactional(self.engine))
        self.engine.pools = PoolWorker(self.engine, self.pools)
        self.memory = Memory(self.settings.cache_max)
        self.loader = Loader(self.engine, self.memory, self._unopened)
        self.claimer = Claimer(
            self.engine, self.memory, self.loader.take, keep=self.loader.keep, loads=self.loader.loads, room=self._room
        )  # fmt: skip
        self.strays = Strays(self.engine, self.claimer, self._holds)
        self.maintenance = Maintenance(self.engine, self.claimer, self.strays, self.memory)
        self._keeper: LeaseKeeper | None = None
        self._lease: Lease | None = None
        self._unlisten: Callable[[], object] = _nothing
        self._unrefuse: Callable[[], object] = _nothing
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._registering = asyncio.Lock()
        self.anew: set[int] = set()  # keys of runs that are taken anew, or held unopened

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open resources, register, and begin to claim.

        Raises:
            ConfigurationError: a `def` step writes in its transaction, and this store's connections are for `async def` alone.
        """
        self._refuse_threads()
        await self.resources.open()
        self._unrefuse = install()
        await self._register()
        self.engine.watchdog.start()
        self.engine.committer.start()
        self.maintenance.start()
        self.engine.operations.start()
        if self.engine.observer is not None:
            await self.engine.observer.start(self.host)
        self._unlisten = self.store.hub.listen(self._poke, self.claimer)
        self.engine.pools.start()
        if "default" in self.pools:
            self.claimer.start()
        served = [*sorted({name for name, _, _ in self.serves}), *(f"pool {pool}" for pool in self.engine.pools.pools)]
        log.info("worker %s serves %s", self.id, ", ".join(served) or "nothing")

    def _refuse_threads(self) -> None:
        """Such a body would call what it has to await: nothing would be written, and the step would succeed."""
        unfit = [name for name, spec in self.engine.registry.steps.items() if spec.transaction and not spec.is_async]
        if unfit and not self.store.thread_transactions:
            raise ConfigurationError(
                f"{', '.join(sorted(unfit))}: a step with transaction=True is `async def` on {self.store.url.partition(':')[0]}: the "
                "connection is asyncpg's, whose methods are awaited"
            )

    async def stop(self, grace: int | None = None) -> None:
        """Claim nothing more, un-arm what has not begun, let attempts finish for *grace* µs while renewing, then release."""
        self.stopping = True
        await self._quiet("marked stopping", self.store.mark_stopping(self.id))
        await self.claimer.stop()
        await self.loader.stop()
        await self._quiet("rid of runs that nobody in it holds", self.strays.clear())
        self._give_back(lambda driver: not driver.any_begun())
        await self._wait_for_runs(self.settings.grace if grace is None else grace)
        self._give_back(lambda driver: True)
        await self.engine.pools.stop()
        await self._wait_for_runs(self.settings.lease)
        await self._close()

    async def _close(self) -> None:
        if self.engine.observer is not None:
            await self.engine.observer.stop()
        await self.maintenance.stop()
        await self.engine.committer.stop()
        self.engine.watchdog.stop()
        self._unlisten()
        self.memory.clear()
        await self.engine.pools.stop()
        await self.engine.operations.stop()
        await self._end_tasks()
        if self._keeper is not None:
            self._keeper.stop()
        await self._quiet("deregistered", self.store.deregister(self.id))
        self._unrefuse()
        await self.resources.close()

    async def crash(self) -> None:
        """Stop without telling the store anything, as if the process had been killed. For tests of recovery."""
        self.stopping = True
        if self.engine.observer is not None:
            await self.engine.observer.stop()
        await self.claimer.stop(at_once=True)
        await self.loader.stop()
        await self.maintenance.stop()
        await self.engine.committer.stop()
        await self.engine.operations.crash()
        await self.engine.pools.crash()
        await self._end_tasks()
        self.engine.watchdog.stop()
        self._unlisten()
        self.memory.clear()
        await end(self.engine.executor.tasks())
        self._unrefuse()
        if self._keeper is not None:
            self._keeper.stop()
        await self.resources.close()  # the process lives on

    async def _end_tasks(self) -> None:
        """End what still waits for the store: registered afresh after this, the worker would live on as a row."""
        await end(sorted(self._tasks, key=lambda task: task.get_name()))

    # ---- what its runs ask of it (engine.Owner) ----------------------------------------------------

    def may_arm(self) -> bool:
        """Return whether the lease lasts long enough to begin something new."""
        return self._keeper is not None and self._keeper.safe()

    def attempt_over(self) -> None:
        """Look whether that was the last thing this worker waits for."""
        self._freed.set()

    def _poke(self) -> None:
        self.claimer.poke()
        self.engine.pools.poke()
        self.engine.operations.queue.poke()

    def let_go(self, driver: RunDriver) -> None:
        """Forget a run that is no longer in progress here."""
        run, told = driver.run, bool(driver.waits or driver.children or driver.operations or driver.pooled or driver.queue)
        self.memory.leave(driver)
        if told and run.status is RunStatus.WAITING:
            self.claimer.poke()
        elif run.status in (RunStatus.WAITING, RunStatus.PENDING):
            self.claimer.due_at(run.wake_at)
        self.claimer.room_made()
        self._freed.set()

    def rebuild(self, driver: RunDriver, refused: Transition | None = None) -> None:
        """Take a run again whose transition was refused; it is lost if its claim is no longer ours."""
        known = finished(driver, refused)
        self.engine.operations.salvage(driver, refused)
        driver.drop()
        self._take_anew(driver.run, known)
        self.memory.leave(driver)

    def has_other_code(self, run: Run, excluded: str) -> bool:
        """Return whether another live worker has code for the run that it has not excluded."""
        return self.maintenance.has_other_code(run, excluded)

    def reread(self, driver: RunDriver) -> None:
        """Hand a run what its inbox holds beyond what was read."""
        self._spawn(self._reread(driver), f"inbox of {driver.run.id}")

    async def _reread(self, driver: RunDriver) -> None:
        run = driver.run
        record = await patient(self.host, self.settings.poll, lambda: self.store.record(run.namespace, run.id), surprises=ALWAYS)
        if record is not None and record.run.fence == run.fence:
            self.host.call_soon(driver.woken, record)

    def hold_from_thread(self, transition: Transition) -> None:
        """Write a held transition on the lease's own connection: the loop is stuck."""
        if self._lease is not None:
            self._lease.apply(transition)
        log.error("run %r is held: %s", transition.run_id, transition.hold[1] if transition.hold else "")

    # ---- ownership ---------------------------------------------------------------------------------

    async def _register(self) -> None:
        self._lease = await self.store.register(self._row(), self.settings.lease)
        self._keeper = LeaseKeeper(
            self.host, self._lease, self.settings, partial(self._lost, self.id), lambda: self.engine.pools.held
        )  # fmt: skip
        self._keeper.start()

    def _lost(self, name: str) -> None:
        """The worker was marked dead: drop everything, stop what runs, and register afresh, unless it has given *name* up already."""
        if self.id != name:
            return
        log.warning("worker %s lost its lease: another worker has its runs; registering afresh", self.id)
        self.memory.clear()
        self.engine.pools.drop()
        self._freed.set()
        if not self.stopping:
            self._spawn(self._again(name), "romulus-register")

    def doubt(self) -> None:
        """What the store holds in this worker's name is not known: give the name up with all that it may own."""
        log.warning("worker %s gives its name up: whether the store carried out its last claim is not known", self.id)
        if self._keeper is not None:
            self._keeper.stop()
        self.memory.clear()
        self.engine.pools.drop()
        self._freed.set()
        self._spawn(self._under_another_name(self.id), "romulus-register")

    async def _under_another_name(self, old: str) -> None:
        await patient(self.host, self.settings.poll, lambda: self.store.mark_dead(old), surprises=ALWAYS)
        await self._again(old)

    async def _again(self, old: str) -> None:
        """Register afresh, once however many found the name *old* lost: each other row would live on beside the worker's own."""
        async with self._registering:
            if self.id == old and not self.stopping:
                await self.loader.stop()
                await patient(self.host, self.settings.poll, self._register_afresh, surprises=ALWAYS)
                self.claimer.poke()

    async def _register_afresh(self) -> None:
        """Register under a new ID at each try: the one before may have been stored although it failed later."""
        if self._keeper is not None:
            self._keeper.stop()
        self.id = self._fresh_id()
        self.memory.clear()  # what came in meanwhile was claimed under the old name
        self.engine.pools.drop()
        await self._register()

    async def _reclaim(self, run: Run, known: Sequence[Known] = ()) -> None:
        """Take a new fence; save how the attempts ended that the dropped driver had in hand; rebuild from the record."""
        record = await patient(self.host, self.settings.poll, lambda: self._new_fence(run))
        if record is None:
            log.warning("run %r: claim %d is no longer the current one; what this worker did for it last was refused", run.id, run.fence)
            self._not_anew(run)
            return
        saved = outcomes_alone(self.engine, known, record, leaves=self.stopping)
        if saved is not None:
            self.engine.committer.submit(saved, lambda verdict: self._saved(record.run, known, saved, verdict))
        else:
            self.host.call_soon(self._taken_anew, record)

    def _saved(self, run: Run, known: Sequence[Known], saved: Transition, verdict: Verdict | BatchRejected) -> None:
        """Rebuild with what is saved; where something else was written to the run meanwhile, save it once more."""
        if saved.status is not RunStatus.RUNNING and (verdict is Verdict.APPLIED or not saved.entries):
            self._not_anew(run)
        else:
            self._take_anew(run, known if verdict is Verdict.REFUSED else ())

    def _take_anew(self, run: Run, known: Sequence[Known] = ()) -> None:
        self.anew.add(run.key)
        self._spawn(self._reclaim(run, known), f"reclaim {run.id}")

    def _taken_anew(self, record: Record) -> None:
        self._not_anew(record.run)
        if record.run.position:
            self.loader.rebuild(record)
        else:
            self.loader.take(record)

    def _not_anew(self, run: Run) -> None:
        self.anew.discard(run.key)
        self._freed.set()

    async def _new_fence(self, run: Run) -> Record | None:
        """Take a new fence under the very claim that was refused: this worker may have taken the run anew meanwhile."""
        try:
            return await self.store.reclaim(run.key, self.id, run.fence)
        except StoreUnavailable:
            raise
        except CommitUnknown:
            self.doubt()  # the run may be owned under a fence that nobody here knows
            return None
        except Exception:
            log.exception("run %r cannot be taken anew", run.id)
            self.doubt()  # nobody here has it, and it is claimed in this worker's name
            return None

    def _unopened(self, record: Record, error: BaseException) -> None:
        """Hold a run whose arguments cannot be decoded here, or end it."""
        transition = unopened(self.engine, record, HoldKind.CODE, str(error))
        self.anew.add(record.run.key)
        self.engine.committer.submit(transition, lambda verdict: self._held_unopened(record, verdict))

    def _held_unopened(self, record: Record, verdict: object) -> None:
        if verdict is Verdict.APPLIED:
            self._not_anew(record.run)
            self.store.hub.changed(record.run.namespace, record.run.id)
            self.store.hub.poke()  # one that has ended leaves children and a parent
        else:  # nobody else would ever take it up while this worker lives
            self.host.call_later(self.settings.poll, self._take_anew, record.run)

    # ---- bounds ------------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return how many more runs may be taken up: bounded by runs, by slots, by bytes, and by what waits for the writer."""
        settings = self.settings
        if self.engine.committer.backlog > settings.backlog_max or self.memory.bytes > settings.record_bytes_max:
            return 0
        return min(settings.runs_max, 2 * self.engine.slots.limit) - len(self.memory.active) - self.loader.loading

    def _holds(self, run: int) -> bool:
        return (
            run in self.memory.active or run in self.anew or run in self.strays.leaving or self.claimer.holds(run) or self.loader.loads(run)
        )

    def _give_back(self, which: Callable[[RunDriver], bool]) -> None:
        for driver in tuple(self.memory.active.values()):
            if which(driver):
                driver.give_back()

    async def _wait_for_runs(self, limit: int) -> None:
        """Wait until no run is in progress, at most *limit* µs; give back what becomes free meanwhile."""
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self._freed.set()

        handle = self.host.call_later(limit, end)
        while (self.memory.active or self.anew or self.strays.leaving or self.engine.pools.busy) and not over:
            self._freed.clear()
            self._give_back(lambda driver: not driver.armed)
            await self._freed.wait()
        handle.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = self.host.spawn(self._never_unseen(coroutine, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _never_unseen(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Await work that nobody else does again: should it fail all the same, all that was claimed in this worker's name is given up."""
        try:
            await coroutine
        except Exception:
            log.exception("%s failed", name)
            self.doubt()

    # ---- who it is -----------------------------------------------------------------------------------

    def _fresh_id(self) -> str:
        return f"{self.host.identity.host[:40]}-{self.host.identity.pid}-{self.host.random_bits(40):010x}"

    def _row(self) -> WorkerRow:
        who, now = self.host.identity, self.store.estimated_now()
        return WorkerRow(
            self.id, self.namespace, f"{who.host} pid {who.pid}", who.host, who.boot, who.pid, who.pid_start, who.pid_namespace,
            json.dumps(self.serves), json.dumps(self.pools), json.dumps(served_by(self.registry)), self.engine.slots.limit, now, now, 0,
            operating=sorted(self.registry.operating),
        )  # fmt: skip

    async def _quiet(self, what: str, call: Awaitable[None]) -> None:
        """Await a farewell to the store; one that has not heard it finds out by the lease."""
        try:
            await call
        except (StoreUnavailable, CommitUnknown) as error:
            log.warning("worker %s could not be %s: %s", self.id, what, error)
        except Exception:
            log.exception("worker %s could not be %s", self.id, what)


def _nothing() -> None:
    """Stand in for the end of a subscription that has not begun."""
