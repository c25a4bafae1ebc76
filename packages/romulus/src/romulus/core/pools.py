"""Step pools: an attempt that any worker serving its pool may work, under a lease and fence of its own.

A row stands for one attempt. Its run's transition queues it and, once told how it ended, deletes it; whether another attempt follows is
decided there, by `core.attempts`, as for every other step: so a pool's worker needs no policy, and a retry is queued as a new row.

    queued ── claimed by a worker ──> claimed ── it reports, or its claim is over ──> reported ── the run took note ──> (deleted)
       ^── the worker's code or codec cannot read it ──┘

A row is deleted in any state when its run no longer awaits it: the holder learns that at its next heartbeat.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

DEFAULT_POOL: Final = "default"  # of what names no pool: its workers claim the runs too


class PoolState(StrEnum):
    """Where an attempt stands."""

    QUEUED = "queued"
    CLAIMED = "claimed"  # by a worker, under a lease
    REPORTED = "reported"  # how it ended lies in its run's inbox


class PoolEnd(StrEnum):
    """How an attempt ended."""

    RETURNED = "returned"
    RAISED = "raised"
    FINAL = "final"  # it raised what no further attempt would change
    LOST = "lost"  # its claim was over before it was reported
    CUT = "cut off"  # its worker stopped, not for its sake: its body may have done part of its work
    UNBEGUN = "not begun"  # its worker gave it back
    UNREAD = "not read"  # its worker has other code, or not the key: it is queued again as it was, and its run is told nothing


@dataclass(slots=True)
class NewPoolAttempt:
    """An attempt to be queued."""

    seq: int
    pool: str
    step: str
    digest: str  # the command's digest in hex
    arguments: bytes  # after the codec
    number: int  # 1 the first
    due: int  # store µs: not claimed before; 0 is "at once"
    timeout: int | None  # µs
    heartbeat_timeout: int | None  # µs
    heartbeat: bytes = b""  # details of the last heartbeat of the attempts before, after the codec
    fence: int = 0  # of the attempt before, or of the run: the next claim's is above it


class PoolStanding(NamedTuple):
    """What a run's record has of an attempt in a pool."""

    seq: int
    pool: str
    step: str
    digest: str
    number: int
    state: str  # a PoolState
    owner: str | None
    due: int | None  # store µs, while queued
    claimed_at: int | None
    beat_at: int | None  # its last heartbeat

    @property
    def unread(self) -> bool:
        """Return whether it is queued again, since a worker that had claimed it could not read it."""
        return self.state == PoolState.QUEUED and self.claimed_at is not None


@dataclass(slots=True)
class PoolAttempt:
    """A claimed attempt, with all that its body may ask for."""

    key: int  # the store's own, never given twice
    run: int  # Run.key
    generation: int  # Run.generation_key
    run_id: str
    namespace: str
    workflow: str
    version: str
    number_of_generation: int
    depth: int
    started_at: int  # of the generation
    seeds: str
    seq: int
    pool: str
    step: str
    digest: str
    arguments: bytes
    number: int
    timeout: int | None
    heartbeat_timeout: int | None
    heartbeat: bytes
    fence: int


@dataclass(slots=True)
class PoolBeat:
    """A sign of life of a claimed attempt, and the question whether it is still wanted."""

    key: int
    fence: int
    beaten: bool = False  # there was a heartbeat since the last one
    details: bytes | None = None  # of it, after the codec; None: it had none


@dataclass(slots=True)
class PoolReport:
    """How a claimed attempt ended."""

    key: int
    fence: int
    run: int  # Run.key: where it is kept as evidence if it comes too late
    owner: str
    end: PoolEnd
    body: bytes  # value or failure, after the codec
    detail: str  # JSON, for people: kept with a report that comes too late, and with UNREAD
    heartbeat: bytes | None = None  # details of its last heartbeat, after the codec; None: as stored


@dataclass(slots=True)
class TakenPool:
    """Attempts that were claimed from pools."""

    rows: list[PoolAttempt]
    next_due: int | None  # store µs: when the next is due; None: none is queued that could be claimed


class PoolUnread(NamedTuple):
    """What is kept of an attempt that a worker could not read: the detail of its report with `PoolEnd.UNREAD`, as JSON with these names."""

    step: str
    seq: int
    number: int
    generation: int  # Run.generation_key
    pool: str
    reason: str

    def detail(self) -> str:
        """Return it as the report has it."""
        return json.dumps(self._asdict(), ensure_ascii=False)


class PoolTold(NamedTuple):
    """The info of a message about an attempt in a pool: JSON in this order."""

    generation: int  # Run.generation_key
    number: int
    end: str  # a PoolEnd
    fence: int
    heartbeat: str  # hex

    @classmethod
    def of(cls, info: str) -> PoolTold:
        """Return what a message's info says."""
        return cls(*json.loads(info))
