"""What an exception makes of a run, and which journal entry it came from."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from contextlib import suppress
from typing import cast

from .commands import Cancelled, Continued, Failed, Outcome
from .errors import StepFailed
from .failures import dump_failure

_CAME_FROM = "_romulus_position"
_LOOKED_AT_MAX = 10_000  # exceptions of one chain


class ContinueAsNew(BaseException):
    """Ends the generation's code: it goes on as another."""

    def __init__(self, outcome: Continued) -> None:
        super().__init__(f"continue as new: {outcome.workflow} {outcome.version}")
        self.outcome = outcome


def outcome_of(error: BaseException, *, cancelled: bool) -> Outcome:
    """Return what the generation comes to that *error* ends; *cancelled*: a cancel was delivered to it."""
    of = leaves(error)
    for leaf in of:
        if isinstance(leaf, ContinueAsNew):
            return leaf.outcome
    if cancelled and all(isinstance(leaf, CancelledError) for leaf in of):
        return Cancelled(dump_failure(error))
    return Failed(dump_failure(error), ended_by(error))


def raisable(error: BaseException) -> Exception:
    """Return *error* as an outcome that code can be given: nothing that asyncio or Python itself would take as its own."""
    if isinstance(error, (StopIteration, StopAsyncIteration)) or not isinstance(error, Exception):
        wrapped = StepFailed(str(error), type(error).__qualname__)
        wrapped.__cause__ = error
        return wrapped
    return error


def came_from(error: BaseException, position: int) -> None:
    """Remember that *error* is the outcome at *position*."""
    with suppress(Exception):  # a class of an extension may allow no attributes: its origin is then not known
        object.__setattr__(error, _CAME_FROM, position)


def ended_by(error: BaseException) -> int | None:
    """Return the position of the outcome that *error* is, or was raised from or beside; None if it came from none."""
    waiting: deque[BaseException] = deque((error,))
    seen = set[int]()
    while waiting and len(seen) < _LOOKED_AT_MAX:
        looked_at = waiting.popleft()
        if id(looked_at) in seen:
            continue
        seen.add(id(looked_at))
        position = _position(looked_at)
        if position is not None:
            return position
        waiting.extend(_behind(looked_at))
    return None


def leaves(error: BaseException) -> list[BaseException]:
    """Return what is in an exception group, groups in it opened too; any other exception alone."""
    found, waiting = list[BaseException](), [error]
    while waiting:
        looked_at = waiting.pop()
        members = _members(looked_at)
        waiting.extend(reversed(members))
        if not members:
            found.append(looked_at)
    return found


def _position(error: BaseException) -> int | None:
    try:
        position = object.__getattribute__(error, _CAME_FROM)
    except AttributeError:
        return None
    return position if isinstance(position, int) else None


def _behind(error: BaseException) -> list[BaseException]:
    return [*_members(error), *(each for each in (error.__cause__, error.__context__) if each is not None)]


def _members(error: BaseException) -> tuple[BaseException, ...]:
    return cast("BaseExceptionGroup[BaseException]", error).exceptions if isinstance(error, BaseExceptionGroup) else ()
