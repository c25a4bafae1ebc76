"""Ending background tasks, also one whose cancellation gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

AGAIN: Final = 0.2  # seconds after which a task that has not ended is cancelled once more


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel *tasks* and wait until they have ended; what they raise is nobody's any more.

    Cancelled once is not enough: where a timeout of a driver's fires in the same moment, or a library takes the
    cancellation for its own, the task goes on, and whoever waits for its end waits for ever.
    """
    left = list(tasks)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=AGAIN)
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # looked at
        left = [task for task in left if not task.done()]
