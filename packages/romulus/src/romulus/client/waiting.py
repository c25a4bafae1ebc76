"""Waiting for a run without polling it: look, and look again when told that it may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from romulus.core.errors import RunHeld, StoreError
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import Record, Run

from .link import Link

LAST_LOOK_S = 1.0  # for what a timeout says of the run
WATCH_AFTER_S = 0.5  # a watcher looks again after this: progress between parking points is told to nobody in this process


async def ended(link: Link, run_id: str, limit: int | None, raise_on_hold: bool) -> Record:
    """Return the run's record once it has ended.

    Args:
        limit: µs to wait at most.

    Raises:
        RunHeld, RunNotFound; TimeoutError: it has not ended within *limit*.
    """
    seen: list[RunStatus] = []
    if limit is None:
        return await _until_ended(link, run_id, raise_on_hold, seen)
    try:
        async with asyncio.timeout(limit / 1_000_000):
            return await _until_ended(link, run_id, raise_on_hold, seen)
    except TimeoutError:
        run = await _looked_again(link, run_id)
        if run is not None and run.status in TERMINAL:
            return await link.record(run_id)
        stands = _standing(seen[-1] if seen else None) if run is None else _standing(run.status, run.hold_reason)
        raise TimeoutError(f"run {run_id!r} has not ended within {limit / 1_000_000:g} s, it {stands}") from None


async def snapshots(link: Link, run_id: str) -> AsyncIterator[Record]:
    """Yield the run's record now and after each change seen, until it has ended."""
    shown: tuple[object, ...] = ()
    with await link.watch(run_id) as watch:
        while True:
            record = await link.record(run_id)
            if _face(record) != shown:
                shown = _face(record)
                yield record
            if record.run.status in TERMINAL:
                return
            await watch.changed_within(WATCH_AFTER_S)


async def _until_ended(link: Link, run_id: str, raise_on_hold: bool, seen: list[RunStatus]) -> Record:
    until = {*TERMINAL, RunStatus.HELD} if raise_on_hold else TERMINAL
    with await link.watch(run_id, until) as watch:
        over = False
        while True:
            if not over:  # the status alone tells; the rest is read once it is wanted
                seen[:] = [await link.status(run_id)]
                over = seen[0] in until
            if over:
                record = await link.record(run_id)
                seen[:] = [record.run.status]
                if record.run.status in TERMINAL:  # else a person retried it in between
                    return record
                if raise_on_hold and record.run.status is RunStatus.HELD:
                    raise RunHeld(run_id, record.run.hold_reason)
            over = await watch.changed()


async def _looked_again(link: Link, run_id: str) -> Run | None:
    """Return the run as it stands; who waits for its end is told of nothing else. None: the store does not say, or not soon."""
    try:
        async with asyncio.timeout(LAST_LOOK_S):
            return await link.run(run_id)
    except (StoreError, TimeoutError):
        return None


def _standing(status: RunStatus | None, hold_reason: str = "") -> str:
    if status is RunStatus.HELD and hold_reason:
        return f"is held: {hold_reason}"
    return "is not read yet" if status is None else f"is {status}; it goes on"


def _face(record: Record) -> tuple[object, ...]:
    run = record.run
    return run.status, run.generation, run.position, run.revision, run.fence, run.cancel_seq, len(record.waits)
