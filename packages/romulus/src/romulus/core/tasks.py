"""Tasks and futures whose hash is the run's own, so that sets of them iterate alike on every pass."""

from __future__ import annotations

import asyncio
from asyncio import tasks as _asyncio_tasks
from typing import Any, Protocol, cast

HASH_MASK = (1 << 61) - 1  # Python reduces hashes modulo this prime
_GOLDEN = 0x1B97F4A7C15F39CD  # odd: consecutive counters land far apart


class Hashing(Protocol):
    """What hands out the hashes: the run's loop."""

    def next_hash(self) -> int:
        """Return the next of the run's hashes."""
        ...


class RunTask(asyncio.Task[Any]):
    """A C task with the run's hash, set before `__init__`: that registers the task in a set."""

    __slots__ = ("_run_hash",)
    _run_hash: int

    def __hash__(self) -> int:
        return self._run_hash


class RunFuture(asyncio.Future[Any]):
    """A C future that takes its hash from its loop when it is first asked for."""

    __slots__ = ("_run_hash",)
    _run_hash: int

    def __hash__(self) -> int:
        try:
            return self._run_hash
        except AttributeError:
            self._run_hash = cast("Hashing", self.get_loop()).next_hash()
            return self._run_hash


def mixed(seed: int, counter: int) -> int:
    """Return a hash of 61 bits. A counter alone would collide in asyncio's process-wide set of tasks."""
    return (seed + counter * _GOLDEN) % HASH_MASK


def hash_gathering(loop_class: type[Hashing]) -> None:
    """Make what `asyncio.gather` returns take its hash from its loop where that is a *loop_class*."""

    def run_hash(self: Any) -> int:
        loop = self.get_loop()
        if type(loop) is not loop_class:
            return object.__hash__(self)
        known = self.__dict__.get("_run_hash")
        if known is None:
            known = self._run_hash = loop.next_hash()
        return cast("int", known)

    cast("Any", _asyncio_tasks)._GatheringFuture.__hash__ = run_hash
