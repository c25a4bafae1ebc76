"""A simulated world: one database file, the processes that share it, and everything that is watched while they run."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from romulus.authoring.registry import Registry
from romulus.core.errors import StoreError
from romulus.core.pools import PoolReport
from romulus.core.transition import Transition
from romulus.store.hub import Notice
from romulus.store.sqlite import Place, SQLiteStore
from romulus.worker.settings import WorkerSettings
from romulus.worker.worker import Worker

from .checks import Checks
from .faults import FaultyStore, Rates
from .host import EPOCH, SimHost
from .ledger import Effect, Ledger
from .loop import SimLoop
from .plain import plain
from .process import ProcessDied, SimCrash, SimProcess
from .provider import OPERATIONS
from .snapshot import Reader
from .steps import POOLED, STEPS, THREADED
from .trace import Trace
from .workflow import program

T = TypeVar("T")
VARIANTS = ("one", "two")  # the two releases of the code that workers may have
SEND = "operation.send"  # the crash point between the last check of the lease and a send
STEPS_MAX = 400_000  # callbacks of one seed
FAILURES_MAX = 20
BOOKINGS = "CREATE TABLE IF NOT EXISTS sim_bookings (run TEXT NOT NULL, generation INTEGER NOT NULL, seq INTEGER NOT NULL) STRICT"


class World:
    """Makes processes, passes their crash points on, and collects what is broken."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = Random(seed)  # noqa: S311 - a seed is the point
        self.path, self.rates = path, Rates()
        self.loop = SimLoop(self.fork_random(), STEPS_MAX)
        self.loop.unhandled = self.unhandled
        self.trace = Trace()
        self.broken: list[str] = []
        self.clock_shift = 0
        self.clock_sets: list[tuple[int, int]] = []  # virtual µs, and by how much the wall clock was set then
        self.stalled = False  # a process stood still for a while
        self.points = 0  # crash points passed
        self.crash_at: set[int] = set()  # numbers of crash points at which the process dies
        self.stop_at: dict[int, int] = {}  # by number of a crash point: µs for which the process stands still
        self.send_stops: list[int] = []  # µs for which a process stands still before the first send, the second, …
        self.frozen_sends = 0.0  # share of the sends before which the process stands still
        self.countdown: dict[int, int] = {}  # by pid: crash points left to live
        self.workers: dict[int, Worker] = {}  # by pid
        self.settings = WorkerSettings()
        self.hop_max = 200  # µs that a hop to a thread takes at most
        self.namespace_shared = True  # processes can tell whether others live
        self.ledger = Ledger(lambda: self.loop.now, self._running, self._variant, self._body_begins)
        self.reader: Reader | None = None
        self.checks: Checks | None = None
        self._ids: dict[int, set[str]] = {}
        self._variants: dict[int, str] = {}
        self._listeners: dict[int, tuple[SimProcess, Notice]] = {}
        self._next_listener = 0
        self._next_pid = 100
        self._whims = Random(seed)  # noqa: S311 - a seed is the point

    # ---- what hosts and stores ask (Surroundings, Audience) ---------------------------------------

    def passed(self, process: SimProcess, point: str) -> None:
        """Take note of a crash point: check after a commit, and kill the process where the seed wants it."""
        self.points += 1
        self.trace.point(self.loop.now, process.name, point)
        if point == "sqlite.commit.done":
            self._committed(process)
        left = self.countdown.get(process.pid)
        if left is not None:
            self.countdown[process.pid] = left - 1
        if left == 0 or self.points in self.crash_at:
            self.note(f"{process.name} crashes at {point}")
            process.kill()
        elif self.points in self.stop_at:
            self.stop(process, self.stop_at[self.points], point)
        if point == SEND:
            self._sends(process)

    def stop(self, process: SimProcess, duration: int, point: str) -> None:
        """Let a process stand still for *duration* µs, from the end of what it does at this moment."""
        self.note(f"{process.name} is stopped for {duration} µs at {point}")
        self.stalled = True
        process.stop(self.loop.now, self.loop.now + duration)

    def set_clock(self, shift: int) -> None:
        """Set the wall clock by *shift* µs."""
        self.clock_shift += shift
        self.clock_sets.append((self.loop.now, shift))

    def is_alive(self, pid: int) -> bool:
        """Return whether the process of that pid lives."""
        return any(process.pid == pid and process.alive for process in self.loop.processes)

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.trace.note(self.loop.now, self.loop.current.name, what)

    def fail(self, what: str) -> None:
        """Note a promise that did not hold."""
        if len(self.broken) < FAILURES_MAX:
            self.broken.append(what)
        self.note(f"BROKEN: {what}")
        self.loop.over = True

    def unhandled(self, context: dict[str, Any]) -> None:
        """Note an exception that nobody took up."""
        error = context.get("exception")
        told = "".join(traceback.format_exception(error)) if error else ""
        self.fail(f"unhandled: {context.get('message')} {told}")

    def listen(self, notice: Notice) -> Notice:
        """Call *notice* in the name of the current process at each commit of any process."""
        key = self._next_listener = self._next_listener + 1
        self._listeners[key] = (self.loop.current, notice)
        return lambda: self._listeners.pop(key, None)

    def evidence_of(self, transition: Transition) -> bool:
        """Return whether evidence of a refused transition is kept."""
        assert self.reader is not None
        return self.reader.evidence_of(transition)

    def recorded(self, transition: Transition) -> bool:
        """Return whether a transition is in the record."""
        assert self.reader is not None
        return self.reader.recorded(transition)

    def was_reported(self, report: PoolReport) -> bool:
        """Return whether how an attempt in a pool ended is in the record."""
        assert self.reader is not None
        sql = "SELECT 1 FROM pool_attempts WHERE key = ? AND fence = ? AND state = 'reported'"
        return bool(self.reader.rows(sql, (report.key, report.fence)))

    # ---- processes ---------------------------------------------------------------------------------

    def fork_random(self) -> Random:
        """Return a generator of its own, drawn from the seed."""
        return Random(self.random.getrandbits(64))  # noqa: S311 - a seed is the point

    def process(self, name: str) -> SimProcess:
        """Return a new process."""
        self._next_pid += 1
        process = SimProcess(f"{name}-{self._next_pid}", self._next_pid)
        self.loop.processes.append(process)
        self.note(f"{process.name} starts")
        return process

    def host(self, process: SimProcess) -> SimHost:
        """Return the host of a process."""
        namespace = "shared" if self.namespace_shared else str(process.pid)
        return SimHost(self.loop, process, self, self.fork_random(), namespace=namespace, delay_max=self.hop_max)

    async def store(self, process: SimProcess, host: SimHost) -> FaultyStore:
        """Return an open store of a process, with the faults of this world."""
        inner = SQLiteStore(Place(str(self.path)), host, lock_wait=0)
        await inner.open()
        return FaultyStore(inner, host, self.fork_random(), self.rates, self)

    def call(self, process: SimProcess, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Run *coroutine* as a task of *process* and return what awaits its outcome.

        Raises:
            ProcessDied: the process died first.
        """
        outcome = self.loop.create_future()
        process.last_words.append(lambda: _died(outcome, process.name))
        if process.alive:
            with self.loop.acting(process):
                task = self.loop.create_task(coroutine)
                task.add_done_callback(lambda done: _hand_on(done, outcome))
        else:
            coroutine.close()
            outcome.set_exception(ProcessDied(process.name))
        return _await(outcome)

    async def boot_worker(self, variant: str, concurrency: int, pools: tuple[str, ...] = ("default",)) -> SimProcess:
        """Start a worker process. It may die on the way."""
        process = self.process("worker")
        self._variants[process.pid] = variant
        with contextlib.suppress(ProcessDied):
            await self.call(process, self._serve(process, variant, concurrency, pools))
        return process

    async def prepare(self) -> None:
        """Make the database, however often that is interrupted, and begin to watch it."""
        made = False
        while not made:
            process = self.process("setup")
            with contextlib.suppress(ProcessDied):
                await self.call(process, self._prepare(process))
                made = True
            process.kill()
        self.reader = Reader(str(self.path))
        self.checks = Checks(self.reader, self.ledger, lambda: EPOCH + self.loop.now + self.clock_shift, self.fail, self.note)
        self.checks.after_commit(set())

    async def _prepare(self, process: SimProcess) -> None:
        inner = SQLiteStore(Place(str(self.path)), self.host(process), lock_wait=0)
        await inner.open()
        connection: Any = inner._writer.session.connection
        connection.execute(BOOKINGS).fetchall()

    async def _serve(self, process: SimProcess, variant: str, concurrency: int, pools: tuple[str, ...]) -> None:
        host = self.host(process)
        store = await self.store(process, host)
        worker = Worker(store, host, registry(variant), concurrency=concurrency, pools=pools, settings=self.settings)  # type: ignore[arg-type]
        self.workers[process.pid] = worker
        try:
            await worker.start()
        except StoreError as error:
            self.note(f"{process.name} cannot start: {error}")
            process.kill()
            host.random_bits(1)  # raises: nothing of it runs on

    # ---- inside --------------------------------------------------------------------------------------

    def _sends(self, process: SimProcess) -> None:
        process.checked_at = self.loop.now
        if self.send_stops:
            self.stop(process, self.send_stops.pop(0), SEND)
        elif self.frozen_sends and self._whims.random() < self.frozen_sends:
            self.stop(process, self._whims.choice((1_000_000, 5_000_000, 12_000_000)), SEND)

    def _committed(self, process: SimProcess) -> None:
        if self.checks is None:
            return
        self.checks.after_commit(self._known_ids(process), process.name)
        for listener, notice in tuple(self._listeners.values()):
            if listener.alive:
                with self.loop.acting(listener):
                    notice()

    def _known_ids(self, process: SimProcess) -> set[str]:
        ids = self._ids.setdefault(process.pid, set())
        worker = self.workers.get(process.pid)
        if worker is not None:
            ids.add(worker.id)
        return ids

    def _running(self) -> str:
        if not self.loop.current.alive:
            raise SimCrash
        return self.loop.current.name

    def _variant(self) -> str:
        return self._variants.get(self.loop.current.pid, VARIANTS[0])

    def _body_begins(self, effect: Effect) -> None:
        self.note(f"{effect.run_id}: body of {effect.step} {effect.label!r} seq {effect.seq} attempt {effect.number} fence {effect.fence}")
        if self.checks is not None:
            self.checks.body_begins(effect)


_registries: dict[str, Registry] = {}


def registry(variant: str) -> Registry:
    """Return what a worker of this release of the code can run."""
    if variant not in _registries:
        steps: list[Any] = [*STEPS.values(), *POOLED.values(), *THREADED.values(), *OPERATIONS.values()]
        made = _registries[variant] = Registry([program, plain], steps)
        made.digests = dict.fromkeys(made.digests, f"sim:{variant}")
    return _registries[variant]


def _died(outcome: Any, name: str) -> None:
    if not outcome.done():
        outcome.set_exception(ProcessDied(name))


async def _await(outcome: Any) -> Any:
    return await outcome


def _hand_on(done: Any, outcome: Any) -> None:
    if outcome.done():
        if not done.cancelled():
            done.exception()  # looked at: the one who asked is gone
    elif done.cancelled():
        outcome.cancel()
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
