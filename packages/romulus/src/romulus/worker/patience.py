"""What background work does when something goes wrong: wait and go on, never die unseen."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.ports import Host

from .pause import pause

T = TypeVar("T")
log = logging.getLogger("romulus.worker")

SURPRISES_MAX: Final = 5  # times that an error nobody expects of a store is waited out, where something else can follow
ALWAYS: Final = sys.maxsize  # where nothing else can


async def patient(host: Host, interval: int, call: Callable[[], Awaitable[T]], *, surprises: int = 0) -> T:
    """Return what *call* returns, calling it again every *interval* µs while the store cannot be reached; that is told of once.

    What it does must come to the same when done twice: a commit whose outcome is unknown is sent again too.
    *surprises*: how often an error that nobody expects of a store is waited out as well, before it is raised.
    """
    warned, left = False, surprises
    while True:
        try:
            return await call()
        except (StoreUnavailable, CommitUnknown) as error:
            log.log(logging.DEBUG if warned else logging.WARNING, "the store cannot be reached, trying again: %s", error)
            warned = True
        except Exception:
            if left == 0:
                raise
            log.log(
                logging.ERROR if left == surprises else logging.DEBUG,
                "the store raised what nobody expects of it, trying again", exc_info=True,
            )  # fmt: skip
            left -= 1
        await pause(host, interval)


async def forever(
    host: Host, interval: int, what: str, work: Callable[[], Awaitable[object]], *, over: Callable[[], bool] = lambda: False
) -> None:
    """Run *work* again and again until *over*; after an error, *interval* µs later.

    A store that cannot be reached is told of once, until it can be again; so is any other error while it is the same.
    """
    warned, failure = False, ""
    while not over():
        try:
            await work()
        except (StoreUnavailable, CommitUnknown) as error:
            log.log(logging.DEBUG if warned else logging.WARNING, "%s has to wait: %s", what, error)
            warned = True
        except asyncio.CancelledError:
            raise
        except Exception as error:
            level = logging.DEBUG if failure == repr(error) else logging.ERROR
            log.log(level, "%s failed and is tried again", what, exc_info=True)
            failure = repr(error)
        else:
            warned, failure = False, ""
            continue
        await pause(host, interval)
