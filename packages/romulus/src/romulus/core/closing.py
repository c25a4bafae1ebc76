"""Ends a generation's code for good: after it has returned, or when its instance is dropped."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any

from .loop import Unhandled, WorkflowLoop

CALLBACKS_BASE_MAX = 1_000  # callbacks run while winding down
CALLBACKS_TASK_MAX = 20  # and as many more for each task there was


def wind_down(loop: WorkflowLoop) -> None:
    """Cancel what is left in creation order, run it to its end within bounds, close the rest. Commands raise; nothing escapes."""
    loop.refusing, loop.halted = True, False
    if loop.ready or loop.generators or not all(task.done() for task in loop.tasks):
        _end(loop)
    for task in loop.tasks:
        if _swallow(task.result):
            _swallow(_cut_off, task)
    loop.tasks.clear()


def _end(loop: WorkflowLoop) -> None:
    """End unfinished code, as the running loop."""
    outside = loop.enter()
    try:
        _cancel_and_drain(loop)
        with _silence():
            _close_tasks(loop)
            _close_generators(loop)
            loop.ready.clear()
    finally:
        loop.leave(outside)


def unretrieved(loop: WorkflowLoop) -> list[Unhandled]:
    """Return the failures of finished tasks that nobody has looked at: asyncio would tell of them when they are freed."""
    failed: list[Any] = [task for task in loop.tasks if task.done() and not task.cancelled()]
    return [Unhandled("Task exception was never retrieved", task.exception()) for task in failed if task._log_traceback]


def keep_for_good(suspended: object) -> None:
    """Keep code that swallows its own end, beyond the interpreter's: freeing it would run it again, outside its run."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(suspended))


def _cancel_and_drain(loop: WorkflowLoop) -> None:
    left, cancelled = CALLBACKS_BASE_MAX + CALLBACKS_TASK_MAX * len(loop.tasks), 0
    while left > 0 and not loop.halted:
        for task in loop.tasks[cancelled:]:  # those created while winding down too
            _swallow(task.cancel)
            cancelled += 1
        if not loop.ready:
            return
        left -= 1
        _swallow(_call, loop.ready.popleft())


@contextmanager
def _silence() -> Generator[None, None, None]:
    """Drop what the interpreter says of code that swallows even its own closing."""
    heard, sys.unraisablehook = sys.unraisablehook, _unheard
    try:
        yield
    finally:
        sys.unraisablehook = heard


def _unheard(unraisable: object) -> None:
    """Say nothing."""


def _call(handle: Any) -> None:
    try:
        if not handle._cancelled:
            handle._context.run(handle._callback, *handle._args)
    finally:
        del handle  # tracebacks keep frames, and these would keep what raised


def _close_tasks(loop: WorkflowLoop) -> None:
    for task in loop.tasks:  # grows while code that is being closed begins more
        if not task.done():
            _swallow(_close_coroutine, task)
    loop.tasks = [task for task in loop.tasks if task.done()]


def _close_coroutine(task: Any) -> None:
    """Close the code of a task that would not end, and cut it off what it waits for."""
    task._log_destroy_pending = False
    waits_for, coroutine = task._fut_waiter, task.get_coro()
    if waits_for is not None:
        waits_for.cancel()
    try:
        coroutine.close()
    finally:
        if getattr(coroutine, "cr_frame", None) is not None:
            keep_for_good(coroutine)


def _cut_off(task: Any) -> None:
    """Let go of the frames that a task's exception holds: they hold the task, and so all would wait for the collector."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        error.__traceback__ = None


def _close_generators(loop: WorkflowLoop) -> None:
    while loop.generators:
        _swallow(_close_generator, loop.generators.pop(0))


def _close_generator(generator: AsyncGenerator[Any, Any]) -> None:
    closing = generator.aclose()
    try:
        closing.send(None)
    except BaseException:  # noqa: BLE001 - StopIteration: it has ended
        return
    finally:
        if getattr(generator, "ag_frame", None) is not None:
            keep_for_good(generator)
    closing.close()


def _swallow(fn: Callable[..., object], *args: object) -> bool:
    """Call *fn*; return whether it raised. Nothing that code on its way out raises is of interest, and nothing may stop us."""
    try:
        fn(*args)
    except BaseException:  # noqa: BLE001
        return True
    finally:
        del fn, args
    return False
