"""An asyncio event loop on virtual time: when nothing is ready, time jumps to the next timer."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import base_events, events
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, cast

from romulus.core.tasks import mixed

from .process import SimCrash, SimProcess

COST_MAX = 20  # µs of virtual time that one callback takes at most


class Stuck(Exception):
    """Nothing is ready, no timer is set, and the scenario has not ended; or it went on past its bound."""


class Over(Exception):
    """A promise did not hold: what comes after proves nothing."""


class SimHandle(events.Handle):
    """A callback of one simulated process."""

    __slots__ = ("process", "thread")
    process: SimProcess
    thread: bool


class SimTimer(events.TimerHandle):
    """A delayed callback of one simulated process."""

    __slots__ = ("process", "thread")
    process: SimProcess
    thread: bool


class SimTask(asyncio.Task[Any]):
    """A task that belongs to a process, with a hash that is alike in every run of the seed."""

    __slots__ = ("_sim_hash", "sim_process")
    _sim_hash: int
    sim_process: SimProcess

    def __hash__(self) -> int:
        return self._sim_hash


class SimFuture(asyncio.Future[Any]):
    """A future with a hash that is alike in every run of the seed."""

    __slots__ = ("_sim_hash",)
    _sim_hash: int

    def __hash__(self) -> int:
        return self._sim_hash


class SimLoop(base_events.BaseEventLoop):
    """Runs one callback at a time, of a process chosen by the seed; each takes a little virtual time."""

    def __init__(self, random: Random, steps_max: int) -> None:
        super().__init__()
        self.now = 0  # virtual µs
        self.steps, self.steps_max = 0, steps_max
        self.control = SimProcess("control", 1)  # the scenario itself; never dies
        self.current = self.control
        self.processes: list[SimProcess] = [self.control]
        self.over = False  # a promise did not hold
        self.unhandled: Callable[[dict[str, Any]], object] = lambda context: None  # told of what nobody took up
        self._random = random
        self._timers: list[tuple[int, int, SimTimer]] = []
        self._order = self._hashes = 0
        self._generators: list[Any] = []
        self.set_exception_handler(lambda _, context: self._told(context))

    # ---- what asyncio calls --------------------------------------------------------------------

    def time(self) -> float:
        """Return virtual seconds."""
        return self.now / 1_000_000

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> SimHandle:  # type: ignore[override]
        """Call *callback* in its turn, in the name of the process whose task it is, else of the caller."""
        return self._ready_now(callback, args, context, thread=False)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> SimHandle:  # type: ignore[override]
        """As `call_soon`: there is one thread."""
        return self._ready_now(callback, args, context, thread=False)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> SimTimer:  # type: ignore[override]
        """Call *callback* after *delay* virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> SimTimer:  # type: ignore[override]
        """Call *callback* when virtual time has reached *when* seconds."""
        return self.timer(round(when * 1_000_000), callback, args, context)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None, **more: Any) -> SimTask:
        """Return a task of the current process."""
        task = SimTask.__new__(SimTask)
        task._sim_hash, task.sim_process = self._next_hash(), self.current
        shown = getattr(coro, "__qualname__", "task") if name is None else str(name)
        cast("Any", asyncio.Task).__init__(task, coro, loop=self, name=shown, context=context, **more)
        self.current.tasks.append(task)
        return task

    def create_future(self) -> SimFuture:
        """Return a future."""
        future = SimFuture(loop=self)
        future._sim_hash = self._next_hash()
        return future

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Refuse: threads are reached through the host."""
        raise RuntimeError("the simulated world has one thread: use the host")

    # ---- what the simulation calls -------------------------------------------------------------

    def timer(
        self, when: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None = None, *, thread: bool = False
    ) -> SimTimer:
        """Call *callback* at *when* (virtual µs); *thread*: it stands for a thread's work, which a blocked loop does not hold up."""
        timer = SimTimer(when / 1_000_000, callback, args, self, context)
        timer.process, timer.thread = self._owner(callback), thread
        self._order += 1
        heapq.heappush(self._timers, (max(when, self.now), self._order, timer))
        return timer

    @contextmanager
    def acting(self, process: SimProcess) -> Generator[None, None, None]:
        """Let what is begun here belong to *process*."""
        before, self.current = self.current, process
        try:
            yield
        finally:
            self.current = before

    # ---- inside --------------------------------------------------------------------------------

    def _ready_now(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None, *, thread: bool) -> SimHandle:
        handle = SimHandle(callback, args, self, context)
        handle.process, handle.thread = self._owner(callback), thread
        self._enqueue(handle)
        return handle

    def _owner(self, callback: Callable[..., Any]) -> SimProcess:
        task = getattr(callback, "__self__", None)
        return task.sim_process if type(task) is SimTask else self.current

    def _enqueue(self, handle: SimHandle | SimTimer) -> None:
        process = handle.process
        if process.alive:
            (process.thread_queue if handle.thread else process.loop_queue).append(handle)

    def _run_once(self) -> None:
        self.steps += 1
        if self.over:
            raise Over
        if self.steps > self.steps_max:
            raise Stuck(f"the scenario took more than {self.steps_max} callbacks")
        self._wake_timers()
        queues = [(process, queue) for process in self.processes if (queue := process.runnable(self.now)) is not None]
        if not queues:
            self._jump()
            return
        process, queue = queues[0] if len(queues) == 1 else queues[self._random.randrange(len(queues))]
        handle = queue.popleft()
        if not handle._cancelled:
            self._run_handle(process, handle)

    def _run_handle(self, process: SimProcess, handle: SimHandle) -> None:
        self.now += self._random.randrange(1, COST_MAX)
        before, self.current = self.current, process
        try:
            handle._run()
        finally:
            self.current = before

    def _wake_timers(self) -> None:
        timers = self._timers
        while timers and (timers[0][0] <= self.now or timers[0][2]._cancelled):
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                self._enqueue(timer)

    def _jump(self) -> None:
        """Move time to the next timer, or to the end of the next stall."""
        times = [process.held_until(self.now) for process in self.processes]
        times += [when for when, _, timer in self._timers[:1] if timer]
        known = [when for when in times if when is not None]
        if not known:
            raise Stuck("nothing is ready and no timer is set")
        self.now = max(self.now, min(known))

    def _next_hash(self) -> int:
        self._hashes += 1
        return mixed(1, self._hashes)

    def _told(self, context: dict[str, Any]) -> None:
        if self.current.alive and not isinstance(context.get("exception"), SimCrash):
            self.unhandled(context)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Forget nothing: a cancelled timer is skipped when its time comes."""

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        self._generators.append(agen)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Do nothing: generators live as long as the loop."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is nobody to wake."""
