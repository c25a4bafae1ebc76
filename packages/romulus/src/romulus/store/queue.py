"""When a run may be claimed and before whom: the columns `wake_at`, `lane` and `queue_at`.

A run of priority 0 queues by its due time. One of another priority queues by its due time until that has come (`RISING`), then by
its rank: due time less `BONUS` a level (`RANKED`). So priority never starts a run early, and none waits for ever behind others.
"""

from __future__ import annotations

from typing import Final, LiteralString

from romulus.core.machine import CLAIMABLE, RunStatus

# How a claimable run stands in the queue (column `lane`): by its due time; by its rank, once due; by its due time until then.
PLAIN: Final = 0
RANKED: Final = 1
RISING: Final = 2
BONUS: Final = 10_000_000  # µs that one level of priority is worth: ageing, so that nothing starves


def place(status: RunStatus, wake_at: int | None, priority: int, now: int) -> tuple[int | None, int, int | None]:
    """Return (wake_at, lane, queue_at) of a run without an owner; a *wake_at* of 0 is now."""
    if wake_at is None or status not in CLAIMABLE:
        return None, PLAIN, None
    due = wake_at or now
    if not priority:
        return due, PLAIN, due
    return (due, RANKED, due - priority * BONUS) if due <= now else (due, RISING, due)


def lane_sql(wake: LiteralString, now: LiteralString) -> LiteralString:
    """Return the expression for `lane` of a run due at *wake* (an expression, NULL for never)."""
    return f"CASE WHEN priority = 0 OR {wake} IS NULL THEN 0 WHEN {wake} <= {now} THEN 1 ELSE 2 END"


def queue_sql(wake: LiteralString, now: LiteralString) -> LiteralString:
    """Return the expression for `queue_at` of a run due at *wake*."""
    return f"{wake} - CASE WHEN {wake} <= {now} THEN priority * 10000000 ELSE 0 END"
