"""Ends a generation's code for good: after it has returned, or when its instance is dropped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from .loop import WorkflowLoop

CALLBACKS_BASE_MAX = 1_000  # callbacks run while winding down, and as many more for each task
CALLBACKS_TASK_MAX = 20


def wind_down(loop: WorkflowLoop) -> None:
    """Cancel what is left in creation order, run it to its end within bounds, close the rest. Commands raise; nothing escapes."""
    loop.refusing, loop.halted = True, False
    outside = loop.enter()
    try:
        _cancel_and_drain(loop)
        with _silence(any(not task.done() for task in loop.tasks)):
            _close_tasks(loop)
            _close_generators(loop)
            _forget(loop)
    finally:
        loop.leave(outside)


def _cancel_and_drain(loop: WorkflowLoop) -> None:
    left, cancelled = CALLBACKS_BASE_MAX, 0
    while left > 0 and not loop.halted:
        for task in loop.tasks[cancelled:]:  # those created while winding down too
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _swallow(task.cancel)
            cancelled, left = cancelled + 1, left + CALLBACKS_TASK_MAX
        if not loop.ready:
            return
        handle, left = loop.ready.popleft(), left - 1
        if not handle._cancelled:
            _swallow(handle._context.run, handle._callback, *handle._args)


@contextmanager
def _silence(wanted: bool) -> Generator[None, None, None]:
    """Drop what the interpreter says of code that swallows even its own closing, where there is such code."""
    if not wanted:
        yield
        return
    heard, sys.unraisablehook = sys.unraisablehook, _unheard
    try:
        yield
    finally:
        sys.unraisablehook = heard


def _unheard(unraisable: object) -> None:
    """Say nothing."""


def _close_tasks(loop: WorkflowLoop) -> None:
    for task in loop.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if not task.done():
            _swallow(_close_coroutine, task)


def _close_coroutine(task: Any) -> None:
    """Close the code of a task that would not end, and cut it off what it waits for."""
    waits_for = task._fut_waiter
    try:
        task.get_coro().close()
    finally:
        if waits_for is not None:
            waits_for.cancel()


def _close_generators(loop: WorkflowLoop) -> None:
    for generator in loop.generators:
        closing = generator.aclose()
        if not _swallow(closing.send, None):
            _swallow(closing.close)


def _forget(loop: WorkflowLoop) -> None:
    loop.ready.clear()
    loop.tasks.clear()
    loop.generators.clear()


def _swallow(fn: Callable[..., object], *args: object) -> bool:
    """Call *fn*; return whether it raised. Nothing that code on its way out raises is of interest, and nothing may stop us."""
    try:
        fn(*args)
    except BaseException:  # noqa: BLE001
        return True
    return False
