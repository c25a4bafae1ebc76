"""What asyncio iterates in the order of addresses, done in the order of the program instead.

The functions keep their identity: only their code is exchanged, for one that asks which loop runs. So a name that was
imported before Romulus (`from asyncio import as_completed`) is reached too, and other loops get asyncio's own code.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks as _asyncio_tasks
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

_romulus_dispatch: Any = None  # read as a global of asyncio.tasks, where the exchanged code runs: this name only tells checkers of it


class AsCompleted:
    """`asyncio.as_completed` in the order given: a plain iterator of coroutines and an asynchronous one of futures."""

    def __init__(self, awaitables: Iterable[Any], timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._done: asyncio.Queue[asyncio.Future[Any] | None] = asyncio.Queue()
        self._todo = dict.fromkeys(asyncio.ensure_future(each, loop=loop) for each in dict.fromkeys(awaitables))
        self._left = len(self._todo)
        for future in self._todo:
            future.add_done_callback(self._completed)
        self._timer = loop.call_later(timeout, self._expired) if self._todo and timeout is not None else None

    def __iter__(self) -> AsCompleted:
        return self

    def __aiter__(self) -> AsCompleted:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._result_of_next()

    async def __anext__(self) -> Any:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()

    async def _result_of_next(self) -> Any:
        return (await self._next()).result()

    async def _next(self) -> asyncio.Future[Any]:
        future = await self._done.get()
        if future is None:
            raise TimeoutError
        return future

    def _completed(self, future: asyncio.Future[Any]) -> None:
        if future not in self._todo:
            return  # the timeout came first
        del self._todo[future]
        self._done.put_nowait(future)
        if not self._todo and self._timer is not None:
            self._timer.cancel()

    def _expired(self) -> None:
        for future in self._todo:
            future.remove_done_callback(self._completed)
            self._done.put_nowait(None)
        self._todo.clear()


def in_order(awaitables: Any, timeout: float | None) -> AsCompleted:
    """Return what `asyncio.as_completed` returns on a run's loop."""
    if asyncio.isfuture(awaitables) or asyncio.iscoroutine(awaitables):
        raise TypeError(f"expects an iterable of awaitables, not {type(awaitables).__name__}")
    return AsCompleted(awaitables, timeout)


def exchange(loop_class: type[Any], all_tasks: Callable[[Any], set[Any]]) -> None:
    """Give `as_completed` and `all_tasks` code that serves loops of *loop_class* in the order of the program. Once a process."""
    if "_romulus_dispatch" in vars(_asyncio_tasks):
        return
    originals = {name: _copy(getattr(_asyncio_tasks, name)) for name in ("as_completed", "all_tasks")}
    setattr(_asyncio_tasks, "_romulus_dispatch", _Dispatch(loop_class, originals, all_tasks))  # noqa: B010
    replacements: tuple[tuple[str, Any], ...] = (("as_completed", _as_completed), ("all_tasks", _all_tasks))
    for name, replacement in replacements:
        function = getattr(_asyncio_tasks, name)
        if isinstance(function, FunctionType):  # in C on some Pythons, and in order there
            function.__code__ = replacement.__code__


class _Dispatch:
    """Asks which loop runs."""

    def __init__(self, loop_class: type[Any], originals: dict[str, Any], all_tasks: Callable[[Any], set[Any]]) -> None:
        self._class, self._originals, self._all_tasks = loop_class, originals, all_tasks

    def as_completed(self, awaitables: Any, timeout: float | None) -> Any:
        if type(asyncio._get_running_loop()) is self._class:
            return in_order(awaitables, timeout)
        return self._originals["as_completed"](awaitables, timeout=timeout)

    def all_tasks(self, loop: Any) -> Any:
        chosen = asyncio.get_running_loop() if loop is None else loop
        if type(chosen) is self._class:
            return self._all_tasks(chosen)
        return self._originals["all_tasks"](chosen)


def _copy(function: Any) -> Any:
    """Return a function of the same code, to be called once the original's code is exchanged."""
    if not isinstance(function, FunctionType):
        return function
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    return _romulus_dispatch.as_completed(fs, timeout)


def _all_tasks(loop: Any = None) -> Any:
    return _romulus_dispatch.all_tasks(loop)
