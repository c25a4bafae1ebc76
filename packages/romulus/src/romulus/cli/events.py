"""`romulus events …`: send events, list those stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from romulus.client import EventRecord

from .command import Cli, command
from .output import brief, print_json, print_page, say
from .reading import parsed_json

group = typer.Typer(help="Send events, list those stored.", no_args_is_help=True)
EVENT_COLUMNS: dict[str, Callable[[EventRecord], object]] = {
    "EVENT": lambda event: event.id,
    "NAME": lambda event: event.name,
    "CORRELATION ID": lambda event: event.correlation_id,
    "RECEIVED": lambda event: event.received_at,
    "STATE": lambda event: f"{event.state}, late" if event.late else event.state,
    "RUN": lambda event: event.run_id,
    "PAYLOAD": lambda event: brief(event.payload),
}


@command(group, "send")
async def send(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Event name.")],
    payload: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Payload; null unless given.")] = None,
    *,
    correlation_id: Annotated[str, typer.Option("--correlation-id", help="Which wait it is for: a run's ID unless its code says else.")],
    event_id: Annotated[str | None, typer.Option("--event-id", help="Sending the same ID again stores nothing.")] = None,
) -> None:
    """Send an event; it stays until a run consumes it."""
    value = parsed_json(payload, "the payload")
    async with cli.client() as client:
        receipt = await client.send_event(name, value, correlation_id=correlation_id, event_id=event_id)
    print_json(receipt) if cli.json else say(f"{receipt.id}" + (" (was stored before)" if receipt.duplicate else ""))


@command(group, "list")
async def list_events(
    cli: Cli,
    matched: Annotated[bool | None, typer.Option("--matched/--unmatched", help="Only those a wait has taken, or has not.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind the page that ended with this cursor.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Events at most.")] = 100,
) -> None:
    """List stored events in the order they arrived."""
    async with cli.client() as client:
        page = await client.events(matched=matched, after=after, limit=limit)
    print_page(page, EVENT_COLUMNS, cli.json, "events")
