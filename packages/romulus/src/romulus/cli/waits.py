"""`romulus waits`: what runs wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from romulus.client import WaitRecord

from .command import Cli, command
from .output import print_page

WAIT_COLUMNS: dict[str, Callable[[WaitRecord], object]] = {
    "RUN": lambda wait: wait.run_id,
    "EVENT": lambda wait: wait.name,
    "CORRELATION ID": lambda wait: wait.correlation_id,
    "SINCE": lambda wait: wait.opened_at,
    "DEADLINE": lambda wait: wait.deadline,
    "SHARED": lambda wait: wait.shared or None,
    "MATCHED WITH": lambda wait: wait.event_id,
}


def add_to(root: typer.Typer) -> None:
    """Add the command to *root*."""

    @command(root, "waits")
    async def waits(
        cli: Cli,
        after: Annotated[str | None, typer.Option("--after", help="Go on behind the page that ended with this cursor.")] = None,
        limit: Annotated[int, typer.Option("--limit", help="Waits at most.")] = 100,
    ) -> None:
        """List the events that runs wait for, oldest wait first."""
        async with cli.client() as client:
            page = await client.waits(after=after, limit=limit)
        print_page(page, WAIT_COLUMNS, cli.json, "open waits")
