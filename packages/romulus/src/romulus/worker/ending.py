"""Ending background tasks, also one whose cancellation gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

AGAIN: Final = 0.2  # seconds after which a task that has not ended is cancelled once more


async def end(tasks: Iterable[asyncio.Task[Any]], *, tries: int | None = None) -> list[asyncio.Task[Any]]:
    """Cancel *tasks* and wait until they have ended; what they raise is nobody's any more. Return those that go on after *tries*.

    Cancelled once is not enough: where a timeout of a driver's fires in the same moment, or a library takes the
    cancellation for its own, the task goes on, and whoever waits for its end waits for ever.
    """
    left, tried = list(tasks), 0
    while left and (tries is None or tried < tries):
        tried += 1
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=AGAIN)
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # looked at
        left = [task for task in left if not task.done()]
    return left
