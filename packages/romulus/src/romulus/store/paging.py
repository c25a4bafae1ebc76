"""Pages of a listing, and the cursors that lead from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from romulus.core.errors import ConfigurationError

from .contract import Listed

POSITION_MAX: Final = 2**63 - 1
T = TypeVar("T")


def position(cursor: str | None) -> int:
    """Return where a listing goes on.

    Raises:
        ConfigurationError: *cursor* is none of ours.
    """
    if cursor is None:
        return 0
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdecimal() and len(cursor) <= 19 and int(cursor) <= POSITION_MAX:  # pyright: ignore[reportUnnecessaryIsInstance]
        return int(cursor)
    raise ConfigurationError(f"{cursor!r} is not a cursor of this listing: pass `next` of the page before")


def page(items: list[T], limit: int, key: Callable[[T], int]) -> Listed[T]:
    """Return a page, with a cursor if it is full."""
    return Listed(items, str(key(items[-1])) if items and len(items) == limit else None)
