"""What differs between the two interpreters, in words for the person who mends the code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from romulus.core.errors import Mismatch, Undecodable
from romulus.core.record import Kind

from .words import Asked

CAUSES = (
    "usual causes: the order of a set, hash(), id(), a global that earlier runs changed, the environment, a clock read behind a library; "
    "sort what comes out of a set, move the rest into a step; the run goes on by itself when a worker with mended code starts"
)
ENDED = {
    "": "had not ended",
    "Returned": "had returned",
    "Failed": "had raised",
    "Cancelled": "was cancelled",
    "Continued": "continued as new",
}


def commands(here: Sequence[Asked], there: Sequence[tuple[int, Asked]], position: int) -> str | None:
    """Return the first difference between what the worker's code and the second interpreter's asked for, None if there is none."""
    for first, second in zip_longest(here, there):
        at, asked = second or (position, None)
        if first != asked:
            return _said(at, f"asked for {_in_words(first)}", f"for {_in_words(asked, like=first)}")
    return None


def outcome(here: str, there: str, position: int) -> str | None:
    """Return how the ways the code ended differ, None if they do not."""
    return None if here == there else _said(position, ENDED[here], f"it {ENDED[there]}")


def mismatch(error: Mismatch) -> str:
    """Return a difference between the record and what the second interpreter asked for."""
    return _said(error.position, f"asked for {error.recorded}", f"for {error.attempted}")


def undecodable(position: int, error: Undecodable) -> str:
    """Return a value that only the second interpreter cannot decode."""
    return _said(position, "could decode a value", f"it could not: {error}")


def _said(position: int, here: str, there: str) -> str:
    return (
        f"the workflow code is not deterministic: at position {position}, given the same outcomes, the code {here} in the worker and "
        f"{there} in a second interpreter with another hash seed; {CAUSES}"
    )


def _in_words(asked: Asked | None, like: Asked | None = None) -> str:
    """Return a command in words; one that differs from *like* in its digest only is told apart by that."""
    if asked is None:
        return "nothing"
    if asked.kind == Kind.TIMER:
        what, other = "a timer", " for another time"
    else:
        what, other = f"{'a wait for event' if asked.kind == Kind.WAIT else asked.kind} {asked.name!r}", " with other arguments"
    same = like is not None and asked[:3] == like[:3]
    return f"{what} (command {asked.seq}){other if same else ''}"
