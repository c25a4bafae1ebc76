"""Heartbeats of an attempt: what the next attempt finds, and the timeout between two of them."""

from __future__ import annotations

from typing import Any, cast
from weakref import ref

from romulus.core.commands import StepCall
from romulus.core.errors import StepTimeout
from romulus.core.values import ValueCodec

from .engine import Body, Engine

DETAILS: ValueCodec[Any] = ValueCodec(Any, "heartbeat details")


def last_details(engine: Engine, work: Body) -> Any:
    """Return the details of the last heartbeat of the attempt before, None if there was none."""
    if work.row is None or not work.row.heartbeat:
        return None
    return DETAILS.load(engine.registry.vault.open(work.row.heartbeat, "heartbeat details"))


class Heartbeat:
    """Takes an attempt's heartbeats, from any thread, and ends an attempt that falls silent."""

    def __init__(self, engine: Engine, work: Body) -> None:
        self._engine, self._work = engine, ref(work)  # weakly: its context has the attempt, which has this
        self._last = engine.host.monotonic()
        self._timeout = cast("StepCall", work.command.detail).spec.heartbeat_timeout
        if self._timeout is not None:
            engine.host.call_later(self._timeout, self._check)

    def beat(self, details: Any) -> None:
        """Note one heartbeat."""
        self._last = self._engine.host.monotonic()
        work = self._work()
        if work is None:
            return
        if details is not None:
            work.heartbeat = self._engine.registry.vault.seal(DETAILS.dump(details)[0], "heartbeat details")
        work.beats()

    def _check(self) -> None:
        """Look whether the attempt has fallen silent; look again when it could next have."""
        work = self._work()
        if work is None or work.withdrawn or work not in self._engine.executor.running:
            return
        assert self._timeout is not None
        left = self._last + self._timeout - self._engine.host.monotonic()
        if left > 0:
            self._engine.host.call_later(left, self._check)
        else:
            self._engine.executor.silent(work, self._error(work))

    def _error(self, work: Body) -> StepTimeout:
        seconds = (self._timeout or 0) / 1_000_000
        return StepTimeout(f"attempt {work.number} of step {work.command.name!r} sent no heartbeat for {seconds:g} s", "StepTimeout")
