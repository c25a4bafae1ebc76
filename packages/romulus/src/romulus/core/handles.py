"""Callbacks that wait for their turn on a run's loop, and timers that wait for their journal entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

Callback = Callable[..., object]


class Ready(asyncio.Handle):
    """A callback in the ready queue. Built slot by slot in `WorkflowLoop.call_soon`: it is the hottest object there is."""

    __slots__ = ()
    _callback: Any
    _args: Any
    _context: Context
    _cancelled: bool

    def __init__(self, callback: Callback, args: tuple[Any, ...], context: Context) -> None:
        self._callback, self._args, self._context = callback, args, context
        self._cancelled = False

    def cancel(self) -> None:
        """Do not call it any more."""
        self._cancelled = True
        self._callback = self._args = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'cancelled' if self._cancelled else self._callback}>"


class Timers(Protocol):
    """Who withdraws a timer's command: the instance."""

    def withdraw_timer(self, seq: int) -> None:
        """Note that nobody waits for timer *seq* any more."""


class Timer(asyncio.TimerHandle):
    """A timer of workflow code: a command, fired by `Instance.deliver` and by nothing else."""

    __slots__ = ("_owner", "seq")
    _callback: Any
    _args: Any
    _context: Context
    _cancelled: bool
    _when: float
    _owner: Timers | None
    seq: int

    def __init__(self, when: float, callback: Callback, args: tuple[Any, ...], context: Context, owner: Timers | None) -> None:
        self._when, self._callback, self._args, self._context = when, callback, args, context
        self._cancelled = False
        self._owner = owner
        self.seq = 0  # its command's, 0 while it has none

    def cancel(self) -> None:
        """Do not fire; the command is withdrawn."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            if self._owner is not None:
                self._owner.withdraw_timer(self.seq)

    def __repr__(self) -> str:
        return f"<Timer at {self._when}{' cancelled' if self._cancelled else ''}>"
