"""`romulus operations …`: list, show and resolve external operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from romulus.client import AsyncClient, OperationDescription, OperationLine, OperationRecord
from romulus.client.operations import Resolution
from romulus.core.errors import OperationConflict, OperationNotFound
from romulus.core.operations import Applied, GiveUp, NotApplied

from . import resolving
from .command import CONFLICT, NOT_FOUND, USAGE, Cli, Exit, command
from .loading import load_app
from .output import brief, complain, print_fields, print_json, print_page, print_table, say
from .reading import parsed_json

group = typer.Typer(help="External operations: list, show, resolve.", no_args_is_help=True)
COLUMNS: dict[str, Callable[[OperationRecord], object]] = {
    "OPERATION": lambda each: each.id,
    "NAME": lambda each: each.name,
    "STATE": lambda each: each.state,
    "SENDS": lambda each: each.sends,
    "RUN": lambda each: each.run_id,
    "FIRST SENT": lambda each: each.first_sent_at,
    "DUE": lambda each: each.due,
}
HISTORY: dict[str, Callable[[OperationLine], object]] = {
    "AT": lambda line: line.at,
    "WHAT": lambda line: line.kind,
    "WHO": lambda line: line.who,
    "THEN": lambda line: line.state,
    "DETAIL": lambda line: line.error or brief(line.value if line.value is not None else dict(line.detail)),
}


class Word(StrEnum):
    """A reviewer's word."""

    APPLIED = "applied"
    NOT_APPLIED = "not-applied"
    GIVE_UP = "give-up"


@command(group, "list")
async def list_operations(
    cli: Cli,
    state: Annotated[str | None, typer.Option("--state", help="Only those: held, unknown, armed, …")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind the page that ended with this cursor.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Operations at most.")] = 100,
) -> None:
    """List operations in the order they were recorded, those of ended runs included."""
    async with cli.client() as client:
        print_page(await client.operations(state=state, after=after, limit=limit), COLUMNS, cli.json, "operations")


@command(group, "show")
async def show(cli: Cli, operation: Annotated[str, typer.Argument(help="Operation ID.")]) -> None:
    """Show an operation and all that is known of it."""
    async with cli.client() as client:
        found = await client.operation(operation)
    print_json(found) if cli.json else _print(found)


@command(group, "resolve")
async def resolve(
    cli: Cli,
    word: Annotated[Word, typer.Argument(help="applied: record the result. not-applied: send it again. give-up: raise in the workflow.")],
    operations: Annotated[list[str] | None, typer.Argument(help="Operation IDs; without any the options say which.")] = None,
    *,
    reason: Annotated[str, typer.Option("--reason", help="How you know; kept in the history.")],
    reviewer: Annotated[str, typer.Option("--reviewer", help="Who says so; kept in the history.")],
    value: Annotated[str | None, typer.Option("--value", metavar="JSON", help="With applied: the operation's result.")] = None,
    app: Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="With applied: the code that checks it.")] = None,
    name: resolving.Name = None,
    workflow: resolving.Workflow = None,
    state: resolving.State = None,
    since: resolving.Since = None,
    until: resolving.Until = None,
    every: resolving.Every = False,
    yes: resolving.Yes = False,
) -> None:
    """Settle operations whose outcome only a person can find out; each is settled on its own."""
    choice = resolving.Choice(name, workflow, state, since, until, every, yes)
    resolving.check(operations or [], choice)
    resolution, client = _resolution(word, value, app), cli.client(load_app(app) if app else None)
    if operations:
        await _resolve(cli, client, operations, resolution, reason, reviewer)
        return
    async with client:
        told = await resolving.resolve_all(client, word, choice, resolution, reason, reviewer)
    print_json(told) if cli.json else say(f"{told['resolved']} operations resolved, {told['settled_meanwhile']} were settled meanwhile")


async def _resolve(
    cli: Cli, client: AsyncClient, operations: Sequence[str], resolution: Resolution, reason: str, reviewer: str
) -> None:  # fmt: skip
    done: list[OperationRecord] = []
    failed: list[int] = []
    async with client:
        for operation in operations:
            try:
                done.append(await client.resolve_operation(operation, resolution, reason=reason, reviewer=reviewer))
            except (OperationNotFound, OperationConflict) as error:
                complain(f"romulus: {error}")
                failed.append(NOT_FOUND if isinstance(error, OperationNotFound) else CONFLICT)
    if cli.json:
        print_json({"items": done, "next": None})
    else:
        for each in done:
            say(f"{each.id} {each.state}")
    if failed:
        raise Exit(max(failed))


def _resolution(word: Word, value: str | None, app: str | None) -> Applied[Any] | NotApplied | GiveUp:
    if word is not Word.APPLIED:
        if value is not None:
            raise Exit(USAGE, f"--value is the result of an operation that was applied; {word} has none")
        return NotApplied() if word is Word.NOT_APPLIED else GiveUp()
    if value is None or app is None:
        raise Exit(USAGE, "applied needs --value JSON, the operation's result, and --app MODULE:APP, the code that it is checked by")
    return Applied(parsed_json(value, "the value"))


def _print(found: OperationDescription) -> None:
    each = found.operation
    print_fields({
        "operation": each.id, "name": each.name, "state": each.state, "run": each.run_id, "arguments": brief(found.arguments),
        "sends": each.sends, "first sent": each.first_sent_at, "may leave until": found.may_leave_until, "next look": each.due,
        "idempotency key": "honoured" if each.idempotent else "not honoured", "lookup": "yes" if each.has_lookup else "none",
        "pool": each.pool, "given up because" if each.ended_at else "held because": each.hold_reason, "ended": each.ended_at,
    })  # fmt: skip
    if found.history:
        print_table(found.history, HISTORY, "history")
