"""What background work does when something goes wrong: wait and go on, never die unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.ports import Host

from .pause import pause

T = TypeVar("T")
log = logging.getLogger("romulus.worker")


async def patient(host: Host, interval: int, call: Callable[[], Awaitable[T]]) -> T:
    """Return what *call* returns, calling it again every *interval* µs while the store cannot be reached.

    What it does must come to the same when done twice: a commit whose outcome is unknown is sent again too.
    """
    while True:
        try:
            return await call()
        except (StoreUnavailable, CommitUnknown) as error:
            log.warning("the store cannot be reached, trying again: %s", error)
            await pause(host, interval)


async def forever(
    host: Host, interval: int, what: str, work: Callable[[], Awaitable[object]], *, over: Callable[[], bool] = lambda: False
) -> None:
    """Run *work* again and again until *over*; an error of it is logged, and after *interval* µs it is run again.

    A store that cannot be reached is told of once, until it can be again.
    """
    warned = False
    while not over():
        try:
            await work()
        except (StoreUnavailable, CommitUnknown) as error:
            log.log(logging.DEBUG if warned else logging.WARNING, "%s has to wait: %s", what, error)
            warned = True
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed and is tried again", what)
        else:
            warned = False
            continue
        await pause(host, interval)
