"""The greenlet bridge: sync workflow code on the same loop, suspended by switching to the task that drives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import greenlet as _greenlet  # type: ignore[import-untyped,unused-ignore]

from .closing import keep_for_good
from .loop import Finalised, WorkflowLoop

_getcurrent: Callable[[], Any] = _greenlet.getcurrent


class Bridges:
    """The greenlets of one instance: which of them are its own, and where each switches to."""

    __slots__ = ("_drivers", "_loop")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop
        self._drivers: dict[Any, Any] = {}  # greenlet → the greenlet that resumed it last

    def inside(self) -> bool:
        """Return whether the caller runs in one of the greenlets."""
        return bool(self._drivers) and _getcurrent() in self._drivers

    def suspend(self, awaitable: Awaitable[Any]) -> Any:
        """Return the outcome of *awaitable*, from inside. Once commands are refused, and in finalisers, nothing switches."""
        if not self._loop.live or (self._loop.refusing and self._loop.may_raise()):
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()
            raise Finalised
        return self._drivers[_getcurrent()].switch(awaitable)

    async def drive(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run *fn* in a greenlet that shares this task's context, and await for it what it asks for."""
        inner = _greenlet.greenlet(fn)
        inner.gr_context = _getcurrent().gr_context
        try:
            asked = self._resume(inner, inner.switch, *args, **kwargs)
            while not inner.dead:
                try:
                    value = await asked
                except BaseException as error:  # noqa: BLE001 - all of it belongs to the code inside
                    asked = self._resume(inner, inner.throw, error)
                else:
                    asked = self._resume(inner, inner.switch, value)
            return asked
        finally:
            self._drivers.pop(inner, None)
            if not inner.dead:
                keep_for_good(inner)

    def abandon(self) -> None:
        """Let go of the greenlets, once the tasks that drive them have been closed."""
        for inner in self._drivers:
            if not inner.dead:
                keep_for_good(inner)
        self._drivers.clear()

    def frames(self) -> list[Any]:
        """Return the innermost frame of each suspended greenlet."""
        return [inner.gr_frame for inner in self._drivers if inner.gr_frame is not None]

    def _resume(self, inner: Any, switch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Switch to *inner*; return what it asks for, or its result once it is dead."""
        driver = _getcurrent()
        self._drivers[inner] = driver
        if inner.parent is not driver:
            inner.parent = driver
        try:
            return switch(*args, **kwargs)
        finally:
            del args  # an exception among them: its traceback holds this frame
