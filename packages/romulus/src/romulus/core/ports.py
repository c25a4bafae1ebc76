"""The `Host`: the only way the engine reaches threads, clocks, timers and randomness.

`romulus.host` has the real one; the simulator is a second one, on virtual time and a single thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Who this process is, so that others on the machine can tell that it is gone."""

    host: str
    boot: str  # a new value after each boot
    pid: int
    pid_start: str  # tells a reused pid from the first one
    pid_namespace: str


class Stoppable(Protocol):
    """Something that runs until it is stopped."""

    def stop(self) -> None:
        """Stop it and wait for the call in progress to end. Idempotent."""
        ...


class Host(Protocol):
    """Threads, clocks, timers and randomness, handed in from outside. Times are µs."""

    identity: ProcessIdentity

    def wall(self) -> int:
        """Return µs since the epoch; may go back when an operator sets the clock."""
        ...

    def monotonic(self) -> int:
        """Return µs on a clock of this boot that never goes back and that every process of the machine shares."""
        ...

    def random_bits(self, bits: int) -> int:
        """Return that many random bits (also the source of seeds and identifiers)."""
        ...

    def call_later(self, delay: int, fn: Callable[..., object], *args: object) -> asyncio.Handle:
        """Call *fn* on the loop after *delay* µs; the handle cancels."""
        ...

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        """Call *fn* on the loop, in a plain callback that belongs to no task."""
        ...

    def call_from_thread(self, fn: Callable[..., object], *args: object) -> None:
        """As `call_soon`, from any thread."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, context: Context | None = None, name: str | None = None) -> asyncio.Task[T]:
        """Run *coroutine* as a task of the loop."""
        ...

    def offload(self, lane: str, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* on the lane's one thread ("writer", "reader", …), calls of a lane in order; never raises here."""
        ...

    def in_pool(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run *fn* on a thread of the bounded pool for sync steps. The caller bounds how many."""
        ...

    def every(self, name: str, interval: int, fn: Callable[[], object]) -> Stoppable:
        """Call *fn* about every *interval* µs on a thread of its own, beginning at once, until stopped."""
        ...

    def process_alive(self, identity: ProcessIdentity) -> bool | None:
        """Return whether that process still runs; None where it cannot be told from here (other machine or namespace)."""
        ...

    def give_memory_back(self) -> None:
        """Give what this process has freed back to the system, where the C library can. May take long: not for the loop's thread."""
        ...

    def crash_point(self, name: str) -> None:
        """Mark a place between two effects where a crash must lose nothing. The simulator crashes here."""
        ...
