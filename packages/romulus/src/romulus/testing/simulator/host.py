"""The simulated `Host`: clocks, threads and timers of one simulated process, all on the virtual loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any, Protocol, TypeVar

from romulus.core.ports import ProcessIdentity

from .loop import SimLoop
from .process import SimCrash, SimProcess

T = TypeVar("T")
EPOCH = 1_750_000_000_000_000  # µs: the wall clock at virtual time 0
BOOTED = 5_000_000_000  # µs since boot at virtual time 0


class Surroundings(Protocol):
    """What a host asks of the world."""

    clock_shift: int  # µs by which the wall clock was set

    def passed(self, process: SimProcess, point: str) -> None:
        """Take note of a crash point; may kill the process."""
        ...

    def is_alive(self, pid: int) -> bool:
        """Return whether that simulated process lives."""
        ...


class SimHost:
    """One process's `Host`. Everything of a dead process raises `SimCrash`."""

    def __init__(self, loop: SimLoop, process: SimProcess, world: Surroundings, random: Random, *, namespace: str, delay_max: int) -> None:
        self.identity = ProcessIdentity("sim", "boot", process.pid, str(process.pid), namespace)
        self._loop, self._process, self._world, self._random = loop, process, world, random
        self._delay_max = delay_max  # µs that a hop to a thread takes at most
        self._lanes: dict[str, int] = {}  # virtual time at which each lane's last work ends

    def wall(self) -> int:
        """Return virtual µs since the epoch."""
        self._check()
        return EPOCH + self._loop.now + self._world.clock_shift

    def monotonic(self) -> int:
        """Return virtual µs since boot."""
        self._check()
        return BOOTED + self._loop.now

    def random_bits(self, bits: int) -> int:
        """Return bits of the seed."""
        self._check()
        return self._random.getrandbits(bits)

    def call_later(self, delay: int, fn: Callable[..., object], *args: object) -> asyncio.Handle:
        """Call *fn* after *delay* virtual µs."""
        self._check()
        return self._loop.timer(self._loop.now + max(delay, 0), fn, args)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        """Call *fn* in its turn."""
        self._check()
        self._loop.call_soon(fn, *args)

    def call_from_thread(self, fn: Callable[..., object], *args: object) -> None:
        """Call *fn* in its turn."""
        self._check()
        self._loop.call_soon(fn, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, context: Context | None = None, name: str | None = None) -> asyncio.Task[T]:
        """Run *coroutine* as a task of the process."""
        try:
            self._check()
        except SimCrash:
            coroutine.close()
            raise
        return self._loop.create_task(coroutine, name=name, context=context)

    def offload(self, lane: str, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* after a delay that the seed chooses, calls of a lane in order; its result takes its time too."""
        self._check()
        begins = max(self._loop.now, self._lanes.get(lane, 0)) + self._delay()
        self._lanes[lane] = begins + 1
        return self._run_at(begins, fn)

    def in_pool(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* after a delay that the seed chooses."""
        self._check()
        return self._run_at(self._loop.now + self._delay(), fn)

    def every(self, name: str, interval: int, fn: Callable[[], object]) -> Periodic:
        """Call *fn* at once and then about every *interval* µs."""
        self._check()
        return Periodic(self._loop, interval, fn, self._random)

    def process_alive(self, identity: ProcessIdentity) -> bool | None:
        """Return whether that process lives; None in another PID namespace."""
        self._check()
        if identity.pid_namespace != self.identity.pid_namespace:
            return None
        return self._world.is_alive(identity.pid)

    def give_memory_back(self) -> None:
        """Do nothing: the memory is the simulation's."""

    def crash_point(self, name: str) -> None:
        """Let the world crash the process here."""
        self._check()
        self._world.passed(self._process, name)
        self._check()

    def _check(self) -> None:
        if not self._process.alive:
            raise SimCrash

    def _delay(self) -> int:
        return self._random.randrange(1, self._delay_max + 1)

    def _run_at(self, begins: int, fn: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                result = fn()
            except Exception as error:  # noqa: BLE001 - as an executor hands it on
                self._loop.timer(self._loop.now + self._delay(), _fail, (future, error))
            else:
                self._loop.timer(self._loop.now + self._delay(), _settle, (future, result))

        self._loop.timer(begins, work, (), thread=True)
        return future


class Periodic:
    """Stands for a thread that calls a function again and again."""

    def __init__(self, loop: SimLoop, interval: int, fn: Callable[[], object], random: Random) -> None:
        self._loop, self._interval, self._fn, self._random = loop, interval, fn, random
        self._stopped = False
        self._timer = loop.timer(loop.now, self._tick, (), thread=True)

    def stop(self) -> None:
        """Stop it."""
        self._stopped = True
        self._timer.cancel()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._fn()
        if not self._stopped:
            jitter = self._random.randrange(self._interval // 10 + 1)
            self._timer = self._loop.timer(self._loop.now + self._interval + jitter, self._tick, (), thread=True)


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
