"""`romulus runs …`: start runs, look at them, ask something of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from romulus.client import AsyncHandle, JournalEntry, PendingCommand, RunDescription
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import Kind

from . import bulk
from .command import CONFLICT, FAILED, Cli, Exit, command
from .output import brief, complain, local, print_fields, print_json, print_page, print_table, say
from .reading import parsed_attributes, parsed_object, parsed_time


def _outcome(entry: JournalEntry) -> str:
    if entry.error is not None:
        return f"failed: {entry.error}"
    return "fired" if entry.kind == Kind.TIMER else brief(entry.value)


group = typer.Typer(help="Start runs, look at them, ask something of them.", no_args_is_help=True)
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Run ID.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for people; kept with the run.")]
EndOne = Callable[[Cli, str, str], Awaitable[None]]
UNNAMED = "(not recorded)"  # by a worker of an older release
STRANDED = "stranded: no live worker serves this workflow and version"
RUN_COLUMNS: dict[str, Callable[[RunDescription], object]] = {
    "RUN": lambda run: run.id,
    "WORKFLOW": lambda run: f"{run.workflow} {run.version}",
    "STATUS": lambda run: run.status,
    "POSITION": lambda run: run.position,
    "CREATED": lambda run: run.created_at,
    "DUE": lambda run: run.due,
    "NOTE": lambda run: run.hold_reason or run.error or run.cancel_reason or (STRANDED if run.stranded else None),
}
ENTRY_COLUMNS: dict[str, Callable[[JournalEntry], object]] = {
    "POS": lambda entry: entry.position,
    "AT": lambda entry: entry.at,
    "KIND": lambda entry: entry.kind,
    "NAME": lambda entry: entry.name,
    "SEQ": lambda entry: entry.seq,
    "ATTEMPT": lambda entry: entry.attempt or "",
    "FENCE": lambda entry: entry.fence,
    "OUTCOME": _outcome,
}


@command(group, "start")
async def start(
    cli: Cli,
    workflow: Annotated[str, typer.Argument(help="Workflow name.")],
    arguments: Annotated[str | None, typer.Argument(metavar="[JSON-OBJECT]", help="Arguments by name.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Run ID; the same again with equal arguments is the same run.")] = None,  # noqa: A002
    version: Annotated[str | None, typer.Option("--version", help="Workflow version; else the newest that workers serve.")] = None,
) -> None:
    """Start a run. Prints its ID."""
    async with cli.client() as client:
        handle = await client.start_by_name(workflow, parsed_object(arguments, "the arguments"), id=id, version=version)
        run = await handle.describe()
    if cli.json:
        print_json(run)
    else:
        say(run.id)
    if run.stranded:
        complain(f"no live worker serves workflow {run.workflow!r} version {run.version!r}; the run begins when one does")


@command(group, "list")
async def list_runs(
    cli: Cli,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only runs of this workflow.")] = None,
    status: Annotated[RunStatus | None, typer.Option("--status", help="Only runs with this status.")] = None,
    attribute: Annotated[list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="Only runs with it; repeatable.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Created at or after this time.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Created before this time.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind the page that ended with this cursor.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Runs at most.")] = 100,
) -> None:
    """List runs in the order they were created."""
    async with cli.client() as client:
        page = await client.runs(
            workflow=workflow, status=status, attributes=parsed_attributes(attribute), since=parsed_time(since, "--since"),
            until=parsed_time(until, "--until"), after=after, limit=limit,
        )  # fmt: skip
    print_page(page, RUN_COLUMNS, cli.json, "runs")


@command(group, "show")
async def show(cli: Cli, run: RunId) -> None:
    """Show where a run stands and what it awaits."""
    async with cli.client() as client:
        described = await client.get(run).describe()
    if cli.json:
        print_json(described)
    else:
        _print_run(described)


@command(group, "history")
async def history(cli: Cli, run: RunId) -> None:
    """Show a run's recorded outcomes."""
    async with cli.client() as client:
        entries = await client.get(run).history()
    if cli.json:
        print_json({"items": entries, "next": None})
    else:
        print_table(entries, ENTRY_COLUMNS, "entries yet")


@command(group, "watch")
async def watch(cli: Cli, run: RunId) -> None:
    """Follow a run to its end. Exit code 1 where it does not succeed."""
    last: RunDescription | None = None
    async with cli.client() as client:
        async for last in client.get(run).watch():
            print_json(last) if cli.json else say(_line(last))
    if last is None or last.status is not RunStatus.SUCCEEDED:
        raise Exit(FAILED)


async def _cancel_one(cli: Cli, run: str, reason: str) -> None:
    async with cli.client() as client:
        reply = await client.get(run).cancel(reason)
    print_json({"reply": reply}) if cli.json else say(reply.replace("_", " "))
    if reply != "accepted":
        raise Exit(CONFLICT)


async def _terminate_one(cli: Cli, run: str, reason: str) -> None:
    await _asked(cli, run, lambda handle: handle.terminate(reason))


def _ends(name: str, help: str, ask: Callable[[AsyncHandle[object], str], Awaitable[object]], one: EndOne) -> None:  # noqa: A002
    """Add a command that ends one run, by *one*, or the live runs chosen by options, each by *ask*."""

    async def end(
        cli: Cli,
        run: bulk.Run = None,
        *,
        reason: Reason = "",
        workflow: bulk.Workflow = None,
        status: bulk.Status = None,
        attribute: bulk.Attribute = None,
        since: bulk.Since = None,
        until: bulk.Until = None,
        every: bulk.Every = False,
        yes: bulk.Yes = False,
    ) -> None:
        choice = bulk.Choice(workflow, status, attribute, since, until, every, yes)
        bulk.check(run, choice)
        if run is None:
            await bulk.ask_all(cli, name, choice, lambda handle: ask(handle, reason))
        else:
            await one(cli, run, reason)

    end.__doc__ = help
    command(group, name)(end)


_ends(
    "cancel",
    "Ask a run, or the live runs chosen, to end; their code may clean up. Exit code 4 where the one run had ended already.",
    lambda handle, reason: handle.cancel(reason),
    _cancel_one,
)
_ends(
    "terminate",
    "Stop a run, or the live runs chosen, at once; their clean-up code does not run.",
    lambda handle, reason: handle.terminate(reason),
    _terminate_one,
)


@command(group, "retry")
async def retry(cli: Cli, run: RunId) -> None:
    """Begin a failed, cancelled or terminated run again, keeping what was recorded before that."""
    await _asked(cli, run, lambda handle: handle.retry())


@command(group, "release")
async def release(
    cli: Cli,
    run: bulk.Run = None,
    *,
    workflow: bulk.Workflow = None,
    because: bulk.Because = None,
    attribute: bulk.Attribute = None,
    since: bulk.Since = None,
    until: bulk.Until = None,
    every: bulk.Every = False,
    yes: bulk.Yes = False,
) -> None:
    """Let a held run go on, or the held runs chosen."""
    choice = bulk.Choice(workflow, None, attribute, since, until, every, yes, because)
    bulk.check(run, choice, "--because")
    if run is None:
        await bulk.release_all(cli, choice, lambda handle: handle.release())
    else:
        await _asked(cli, run, lambda handle: handle.release())


@command(group, "fork")
async def fork(
    cli: Cli,
    run: RunId,
    position: Annotated[int, typer.Argument(help="The new run keeps the entries before this position.")],
    version: Annotated[str | None, typer.Option("--version", help="Workflow version of the new run; else the same.")] = None,
) -> None:
    """Begin a new run with part of this one's history; prints its ID."""
    async with cli.client() as client:
        forked = await client.get(run).fork(position, version)
        described = await forked.describe()
    print_json(described) if cli.json else say(described.id)


async def _asked(cli: Cli, run: str, ask: Callable[[AsyncHandle[object]], Awaitable[None]]) -> None:
    async with cli.client() as client:
        handle = client.get(run)
        await ask(handle)
        described = await handle.describe()
    print_json(described) if cli.json else say(_line(described))


def _line(run: RunDescription) -> str:
    note = run.hold_reason or run.error or ""
    return f"{local(run.updated_at)}  {run.id}  {run.status}  position {run.position}" + (f"  {note}" if note else "")


def _print_run(run: RunDescription) -> None:
    print_fields(
        {
            "run": run.id, "workflow": f"{run.workflow} {run.version}", "status": run.status,
            "stranded": STRANDED.partition(": ")[2] if run.stranded else None,
            "held because": run.hold_reason, "result": brief(run.result) if run.status is RunStatus.SUCCEEDED else None,
            "error": run.error, "position": run.position, "generation": run.generation,
            "owner": run.owner, "fence": run.fence, "cancel requests": run.cancel_requests or None, "reason": run.cancel_reason,
            "attributes": brief(run.attributes) if run.attributes else None, "created": run.created_at, "started": run.started_at,
            "due": None if run.status in TERMINAL else run.due, "deadline": run.deadline, "finished": run.finished_at,
        }
    )  # fmt: skip
    if run.traceback:
        say("")
        for line in run.traceback.splitlines():
            say(line)
    if run.pending:
        say("")
        print_table(
            run.pending,
            {
                "SEQ": lambda it: it.seq, "KIND": lambda it: it.kind, "NAME": lambda it: it.name or UNNAMED, "STATE": lambda it: it.state,
                "ATTEMPT": lambda it: it.attempt or "", "POOL": _pool, "DUE": lambda it: it.due, "LAST ERROR": lambda it: it.error,
            },
            "commands",
        )  # fmt: skip


def _pool(command: PendingCommand) -> str:
    """Return whose workers work the command, and whether there are any."""
    return f"{command.pool} (no live worker serves it)" if command.unserved else command.pool or ""
