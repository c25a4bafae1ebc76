"""The deterministic event loop that one generation's code runs on: a queue of callbacks and a clock that entries move."""

from __future__ import annotations

import asyncio
import gc
import sys
from _thread import get_ident  # whose garbage collection it is; no thread is used
from asyncio import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Protocol, TypeVarTuple, cast

from .errors import ActivationTimeout, Dropped
from .handles import Ready, Timer
from .iteration import exchange
from .refusing import RefusingLoop
from .tasks import HASH_MASK, RunFuture, RunTask, hash_gathering, mixed

TIMER_MAX = 1_000 * 366 * 86_400 * 1_000_000  # µs: a thousand years
REFUSALS_MAX = 1_000  # commands refused by raising; code that swallows them all is then suspended for good
_KEPT_MIN = 64  # tasks and generators kept before the finished ones are looked for
_new_ready = Ready.__new__
_init_task: Any = cast("Any", asyncio.Task).__init__
Ts = TypeVarTuple("Ts")
Outside = tuple[asyncio.AbstractEventLoop | None, Any]


class Finalised(Dropped, GeneratorExit):
    """A command asked for by an instance that is closed, or by a finaliser. Coroutines that are being closed end by it in silence."""


@dataclass(frozen=True, slots=True)
class Unhandled:
    """An exception that no code of the run took up: a failed callback, or a task's that was never retrieved."""

    message: str
    exception: BaseException | None


AT_REST: Final[deque[Any]] = deque(maxlen=0)  # shared: an empty deque of one's own is 760 bytes


class Owner(Protocol):
    """What the loop asks of its instance."""

    def issue_timer(self, timer: Timer, due: int) -> None:
        """Make *timer* a command, due at *due* (store µs)."""

    def withdraw_timer(self, seq: int) -> None:
        """Note that nobody waits for timer *seq* any more."""

    def note(self, record: object) -> None:
        """Keep *record* until its transition commits."""


class WorkflowLoop(RefusingLoop):
    """Runs callbacks in the order they were scheduled. Time is the last entry's; nothing happens because time passed."""

    def __init__(self, owner: Owner, started_at: int, hash_seed: int) -> None:
        self.instance: Any = owner
        self.started_at = self.now = started_at  # store µs
        self.ready: deque[Any] = deque()
        self.live = False  # an activation is under way and no garbage collection within it
        self.live_before = False  # `live`, while garbage is collected
        self.refusing = False  # the code has ended or is being dropped: commands raise
        self.dead = False  # dropped: nothing it does is kept
        self.stopped = False  # by the watchdog, from its thread
        self.halted = False  # no callback is called any more: stopped, or the code has ended
        self.tasks: list[RunTask] = []  # in creation order, finished ones among them for a while; strong, so that none is collected
        self.generators: list[AsyncGenerator[Any, Any]] = []
        self._hash_seed = hash_seed & HASH_MASK
        self._hashes = self._named = self._refusals = 0
        self._tasks_max = self._generators_max = _KEPT_MIN
        self._handler: Callable[[Any, dict[str, Any]], object] | None = None

    # ---- what asyncio and workflow code call -------------------------------------------------

    def get_debug(self) -> bool:
        """Return False: debug mode would look at the real clock."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    def is_running(self) -> bool:
        """Return whether an activation is under way."""
        return self.live

    def is_closed(self) -> bool:
        """Return whether the code has ended or was dropped."""
        return self.refusing

    def time(self) -> float:
        """Return seconds from the generation's start to the last delivered entry."""
        return (self.now - self.started_at) / 1e6

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Ready:
        """Call *callback* in this activation, after what was scheduled before."""
        if not self.live:
            raise Finalised
        handle = _new_ready(Ready)
        handle._callback = callback
        handle._args = args
        handle._context = copy_context() if context is None else context
        handle._cancelled = False
        self.ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Timer:
        """Call *callback* once *delay* seconds have passed, through a journal entry."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Timer:
        """Call *callback* when `time()` has reached *when*, through a journal entry; soon if it already has."""
        if not self.live:
            raise Finalised
        due = self.started_at + _micros(when)
        known = copy_context() if context is None else context
        if due <= self.now:
            timer = Timer(when, callback, args, known, None)
            self.ready.append(timer)
            return timer
        timer = Timer(when, callback, args, known, self.instance)
        if not self.refusing:
            self.instance.issue_timer(timer, due)
        elif self.may_raise():
            raise Finalised
        return timer

    def create_future(self) -> RunFuture:
        """Return a future with the run's hash."""
        return RunFuture(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: Context | None = None, **more: Any) -> RunTask:  # type: ignore[override]
        """Return a task with the run's hash, named by a counter of the run."""
        task = RunTask.__new__(RunTask)
        task._run_hash = self.next_hash()
        self._named += 1
        shown = f"Task-{self._named}" if name is None else str(name)
        _init_task(task, coro, loop=self, name=shown, context=context, **more)
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self._forget_finished_tasks()
        return task

    def get_task_factory(self) -> None:
        """Return None: there is none but the loop's own."""
        return

    def set_exception_handler(self, handler: Callable[[Any, dict[str, Any]], object] | None) -> None:
        """Call *handler* instead of noting what nobody takes up."""
        self._handler = handler

    def get_exception_handler(self) -> Callable[[Any, dict[str, Any]], object] | None:
        """Return what `set_exception_handler` set."""
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an exception that nobody took up; it is logged when its transition commits."""
        self.instance.note(Unhandled(str(context.get("message", "")), context.get("exception")))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell of an exception that nobody took up, in silence once the code has ended."""
        if self.refusing or self.instance is None:
            return
        if self._handler is None or not self.live:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    # ---- what the instance calls ---------------------------------------------------------------

    def enter(self) -> Outside:
        """Make this the running loop; return what was, for `leave`."""
        outside = _get_running_loop(), sys.get_asyncgen_hooks()
        if self.ready is AT_REST:
            self.ready = deque()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(_first_iteration, _abandoned)
        self.live = True
        return outside

    def leave(self, outside: Outside) -> None:
        """Restore what ran before `enter`. A throw of the watchdog that lands in here skips nothing."""
        try:
            self.live = False
        finally:
            try:
                _set_running_loop(outside[0])
            finally:
                sys.set_asyncgen_hooks(*outside[1])

    def rest(self) -> None:
        """Take as little memory as can be until the next activation."""
        if not self.ready:
            self.ready = AT_REST

    def run(self) -> None:
        """Call what is ready until nothing is, or until the code has ended.

        Raises:
            ActivationTimeout: the watchdog ended the activation, whether or not workflow code swallowed its throw.
        """
        ready = self.ready
        while ready and not self.halted:
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except BaseException as error:  # noqa: BLE001 - what a task raises it also keeps; the rest is told
                    self._raised(error)
        handle = None  # tracebacks keep this frame
        if self.stopped:
            raise ActivationTimeout

    def stop_now(self) -> None:
        """End the activation under way; the instance can only be closed then."""
        self.stopped = self.halted = True

    def next_hash(self) -> int:
        """Return the next of the run's hashes."""
        self._hashes += 1
        return mixed(self._hash_seed, self._hashes)

    def may_raise(self) -> bool:
        """Count a refused command; return False once so many were refused that the code must swallow them."""
        self._refusals += 1
        return self._refusals <= REFUSALS_MAX

    def _raised(self, error: BaseException) -> None:
        if isinstance(error, (ActivationTimeout, KeyboardInterrupt)):
            self.stop_now()
            raise error
        if not isinstance(error, SystemExit):
            self.call_exception_handler({"message": "Exception in callback", "exception": error})

    def _forget_finished_tasks(self) -> None:
        if not self.refusing:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._tasks_max = max(_KEPT_MIN, 2 * len(self.tasks))

    def hold(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold a generator to the end: abandoned, it would run its `finally` when and where it is collected."""
        self.generators.append(generator)
        if len(self.generators) > self._generators_max:
            self.generators = [each for each in self.generators if getattr(each, "ag_frame", None) is not None]
            self._generators_max = max(_KEPT_MIN, 2 * len(self.generators))


def running() -> WorkflowLoop | None:
    """Return the run's loop whose code calls this."""
    loop = _get_running_loop()
    return loop if type(loop) is WorkflowLoop else None


def _first_iteration(generator: AsyncGenerator[Any, Any]) -> None:
    loop = running()
    if loop is not None:
        loop.hold(generator)


def _abandoned(generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing: the finaliser hook of a generator that outlived its instance."""


def _micros(when: float) -> int:
    if not isfinite(when) or abs(when) * 1e6 > TIMER_MAX:
        raise ValueError(f"a timer needs a finite time within a thousand years, not {when!r} s; to wait without one, wait for an event")
    return round(when * 1e6)


def _all_tasks(loop: WorkflowLoop) -> set[RunTask]:
    return {task for task in loop.tasks if not task.done()}


class _Collector:
    """Watches garbage collections: when they happen is chance, so nothing they set off may become a command."""

    thread = 0  # ident of the thread that collects now

    @classmethod
    def watch(cls, phase: str, info: object) -> None:
        """Close a loop that is active in this thread for commands while garbage is collected."""
        started = phase == "start"
        cls.thread = get_ident() if started else 0
        loop = running()
        if loop is None:
            return
        if started:
            loop.live_before, loop.live = loop.live, False
        else:
            loop.live = loop.live_before


def refuse_finalisers() -> None:
    """Raise if the caller runs because garbage is collected: code of a run must not act outside of it either."""
    if _Collector.thread and _Collector.thread == get_ident():
        raise Finalised


hash_gathering(WorkflowLoop)
exchange(WorkflowLoop, _all_tasks)
gc.callbacks.append(_Collector.watch)
