"""What the commands that act on many at once share: all that were chosen, named, and a question before anything is done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

import typer

from romulus.client import Page

from .command import FAILED, Exit

PAGE: Final = 1_000
SHOWN_MAX: Final = 10  # IDs named before the question

T = TypeVar("T")


async def every(page_after: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Give the items of all pages, a page in memory at a time."""
    after: str | None = None
    while True:
        page = await page_after(after)
        for item in page:
            yield item
        after = page.next
        if after is None:
            return


def named(ids: Sequence[str]) -> str:
    """Return the first of *ids*, and how many there are besides."""
    more = f" and {len(ids) - SHOWN_MAX} more" if len(ids) > SHOWN_MAX else ""
    return ", ".join(ids[:SHOWN_MAX]) + more


def confirm(question: str) -> None:
    """Ask on stderr.

    Raises:
        Exit: the answer was not yes, or there was none.
    """
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise Exit(FAILED, "nothing was done; --yes does not ask")
