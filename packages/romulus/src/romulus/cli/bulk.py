"""The bulk forms of `runs cancel` and `runs terminate`: live runs chosen by what they have, asked after a confirmation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from romulus.client import AsyncClient, AsyncHandle, RunDescription
from romulus.core.errors import IllegalTransition
from romulus.core.machine import LIVE, RunStatus

from .choosing import PAGE, confirm, every, named
from .command import USAGE, Cli, Exit
from .output import print_json, say
from .reading import parsed_attributes, parsed_time

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run ID; without one the options say which live runs.")]
Workflow = Annotated[str | None, typer.Option("--workflow", help="Live runs of this workflow.")]
Status = Annotated[RunStatus | None, typer.Option("--status", help="Live runs with this status.")]
Attribute = Annotated[list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="Live runs with it; repeatable.")]
Since = Annotated[str | None, typer.Option("--since", help="Live runs created at or after this time.")]
Until = Annotated[str | None, typer.Option("--until", help="Live runs created before this time.")]
Every = Annotated[bool, typer.Option("--all", help="Every live run of the namespace.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

Ask = Callable[[AsyncHandle[Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which live runs are meant."""

    workflow: str | None
    status: RunStatus | None
    attribute: list[str] | None
    since: str | None
    until: str | None
    every: bool
    yes: bool

    @property
    def empty(self) -> bool:
        """Whether nothing at all was chosen."""
        return not (self.every or self.workflow or self.status or self.attribute or self.since or self.until)


def check(run: str | None, choice: Choice) -> None:
    """Refuse a command that names a run and others as well, or none."""
    if run is None and choice.empty:
        raise Exit(USAGE, "name a run, or say which live runs: --workflow, --status, --attribute, --since, --until or --all")
    if run is not None and not choice.empty:
        raise Exit(USAGE, "name one run or choose several by options, not both")
    if choice.status is not None and choice.status not in LIVE:
        raise Exit(USAGE, f"--status is {choice.status}; a run that has ended cannot be stopped: give a live status")


async def ask_all(cli: Cli, verb: str, choice: Choice, ask: Ask) -> None:
    """Ask every chosen live run, once the user has agreed; a run that ends meanwhile is left as it is."""
    async with cli.client() as client:
        chosen = await _chosen(client, choice)
        if chosen and not choice.yes:
            confirm(f"{verb} {len(chosen)} live runs ({named([run.id for run in chosen])})?")
        answers = Counter([await _answer(client.get(run.id), ask) for run in chosen])
    told = {"asked": answers["asked"], "ended_meanwhile": answers["ended_meanwhile"]}
    print_json(told) if cli.json else say(f"{told['asked']} runs asked, {told['ended_meanwhile']} had ended meanwhile")


async def _chosen(client: AsyncClient, choice: Choice) -> list[RunDescription]:
    found = every(lambda after: client.runs(
        workflow=choice.workflow, status=choice.status, attributes=parsed_attributes(choice.attribute),
        since=parsed_time(choice.since, "--since"), until=parsed_time(choice.until, "--until"), after=after, limit=PAGE,
    ))  # fmt: skip
    return [run async for run in found if run.status in LIVE]


async def _answer(handle: AsyncHandle[Any], ask: Ask) -> str:
    try:
        answer = await ask(handle)
    except IllegalTransition:
        return "ended_meanwhile"
    return "ended_meanwhile" if answer == "already_terminal" else "asked"
