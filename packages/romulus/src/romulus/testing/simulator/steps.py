"""The steps that generated programs call: one for each way a body can run."""

from __future__ import annotations

import asyncio

from romulus.authoring.current import current_attempt
from romulus.authoring.step import step
from romulus.core.retry import Retry

from .ledger import trying

ATTEMPTS = 3
SHORT = Retry(max_attempts=ATTEMPTS, initial=0.2, max_delay=2.0)
TIMEOUT_S = 1.5
POOL = "far"
BOTH = ("default", POOL)
LATE_S = 60.0  # how long a body sleeps that is to run into its timeout


@step(retry=SHORT)
async def work(label: str, fails: int, millis: int) -> str:
    """Work for a while; fail the first *fails* times."""
    with trying(label) as effect:
        await asyncio.sleep(millis / 1000)
        return effect.outcome(fails)


@step(retry=SHORT)
async def quick(label: str, fails: int, millis: int) -> str:
    """Work without suspending."""
    with trying(label) as effect:
        return effect.outcome(fails)


@step(retry=SHORT)
def threaded(label: str, fails: int, millis: int) -> str:
    """Work on a thread."""
    with trying(label) as effect:
        return effect.outcome(fails)


@step(retry=Retry(max_attempts=1))
async def once(label: str, fails: int, millis: int) -> str:
    """Work that is attempted once only."""
    with trying(label) as effect:
        await asyncio.sleep(millis / 1000)
        return effect.outcome(fails)


@step(retry=Retry(max_attempts=None, initial=0.2, max_delay=1.0))
async def stubborn(label: str, fails: int, millis: int) -> str:
    """Work that is attempted for ever."""
    with trying(label) as effect:
        await asyncio.sleep(millis / 1000)
        return effect.outcome(fails)


@step(retry=SHORT, timeout=TIMEOUT_S)
async def timed(label: str, fails: int, millis: int) -> str:
    """Work that runs into its timeout the first *fails* times."""
    with trying(label) as effect:
        await asyncio.sleep(LATE_S if effect.failed_before < fails else millis / 1000)
        return label


@step(retry=SHORT, heartbeat_timeout=0.5)
async def beating(label: str, fails: int, millis: int) -> str:
    """Work that sends heartbeats, but falls silent the first *fails* times."""
    with trying(label) as effect:
        attempt = current_attempt()
        for beat in range(3):
            attempt.heartbeat(beat)
            await asyncio.sleep(LATE_S if effect.failed_before < fails else 0.3)
        return label


@step(retry=SHORT, transaction=True)
async def booked(label: str, fails: int, millis: int) -> str:
    """Write a row in the transaction that also records the outcome."""
    with trying(label) as effect:
        attempt = current_attempt()
        attempt.connection.execute(
            "INSERT INTO sim_bookings VALUES (?, ?, ?)", (attempt.run_id, attempt.run.generation, attempt.seq)
        ).fetchall()
        return effect.outcome(fails)


@step(retry=SHORT, pool=POOL)
async def far(label: str, fails: int, millis: int) -> str:
    """Work in a pool."""
    with trying(label) as effect:
        await asyncio.sleep(millis / 1000)
        return effect.outcome(fails)


@step(retry=Retry(max_attempts=1), pool=POOL)
async def far_once(label: str, fails: int, millis: int) -> str:
    """Work in a pool that is attempted once only."""
    with trying(label) as effect:
        await asyncio.sleep(millis / 1000)
        return effect.outcome(fails)


@step(retry=SHORT, pool=POOL, timeout=TIMEOUT_S)
async def far_timed(label: str, fails: int, millis: int) -> str:
    """Work in a pool that runs into its timeout the first *fails* times."""
    with trying(label) as effect:
        await asyncio.sleep(LATE_S if effect.failed_before < fails else millis / 1000)
        return label


@step(retry=SHORT, pool=POOL, heartbeat_timeout=0.5)
async def far_beating(label: str, fails: int, millis: int) -> str:
    """Work in a pool that sends heartbeats, but falls silent the first *fails* times."""
    with trying(label) as effect:
        attempt = current_attempt()
        for beat in range(3):
            attempt.heartbeat(beat)
            await asyncio.sleep(LATE_S if effect.failed_before < fails else 0.3)
        return label


@step(retry=SHORT, pool=POOL)
def far_threaded(label: str, fails: int, millis: int) -> str:
    """Work on a thread of a pool's worker."""
    with trying(label) as effect:
        return effect.outcome(fails)


STEPS = {"work": work, "quick": quick, "once": once, "stubborn": stubborn, "timed": timed, "beating": beating, "booked": booked}
KINDS = (*STEPS, "threaded")
POOLED = {"far": far, "far_once": far_once, "far_timed": far_timed, "far_beating": far_beating}
POOLED_KINDS = (*POOLED, "far_threaded")
THREADED = {"threaded": threaded, "far_threaded": far_threaded}
ONCE = frozenset({"once", "far_once"})  # attempted once only
LIMITED = frozenset({"timed", "beating", "far_timed", "far_beating"})  # within a time
