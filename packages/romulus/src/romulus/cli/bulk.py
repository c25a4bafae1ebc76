"""The bulk forms of `runs cancel`, `terminate` and `release`: live or held runs chosen by what they have, asked after a confirmation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from romulus.client import AsyncClient, AsyncHandle, RunDescription
from romulus.core.errors import IllegalTransition
from romulus.core.machine import LIVE, RunStatus

from .choosing import PAGE, confirm, every, named
from .command import USAGE, Cli, Exit
from .output import print_json, say
from .reading import parsed_attributes, parsed_time

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run ID; without one the options say which runs.")]
Workflow = Annotated[str | None, typer.Option("--workflow", help="Runs of this workflow.")]
Status = Annotated[RunStatus | None, typer.Option("--status", help="Live runs with this status.")]
Attribute = Annotated[list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="Runs with it; repeatable.")]
Since = Annotated[str | None, typer.Option("--since", help="Runs created at or after this time.")]
Until = Annotated[str | None, typer.Option("--until", help="Runs created before this time.")]
Every = Annotated[bool, typer.Option("--all", help="Every such run of the namespace.")]
Because = Annotated[str | None, typer.Option("--because", metavar="TEXT", help="Held runs whose hold reason has this in it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

Ask = Callable[[AsyncHandle[Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which live runs are meant, or which held ones."""

    workflow: str | None
    status: RunStatus | None
    attribute: list[str] | None
    since: str | None
    until: str | None
    every: bool
    yes: bool
    because: str | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing at all was chosen."""
        return not (self.every or self.workflow or self.status or self.attribute or self.since or self.until or self.because)

    def takes(self, run: RunDescription) -> bool:
        """Return whether a run of the listing is one of them: the listing knows nothing of hold reasons, or of all that are live."""
        return run.status in LIVE and (self.because is None or self.because.lower() in (run.hold_reason or "").lower())


def check(run: str | None, choice: Choice, which: str = "--status") -> None:
    """Refuse a command that names a run and others as well, or none. *which*: the option that it alone has."""
    if run is None and choice.empty:
        raise Exit(USAGE, f"name a run, or say which runs: --workflow, {which}, --attribute, --since, --until or --all")
    if run is not None and not choice.empty:
        raise Exit(USAGE, "name one run or choose several by options, not both")
    if choice.status is not None and choice.status not in LIVE:
        raise Exit(USAGE, f"--status is {choice.status}; a run that has ended cannot be stopped: give a live status")


async def ask_all(cli: Cli, verb: str, choice: Choice, ask: Ask) -> None:
    """Ask every chosen live run to end, once the user has agreed; one that ends meanwhile is left as it is."""
    answers = await _ask(cli, f"{verb} %d live runs", choice, ask)
    told = {"asked": answers["asked"], "ended_meanwhile": answers["left"]}
    print_json(told) if cli.json else say(f"{told['asked']} runs asked, {told['ended_meanwhile']} had ended meanwhile")


async def release_all(cli: Cli, choice: Choice, ask: Ask) -> None:
    """Let every chosen held run go on, once the user has agreed; one that is no longer held is left as it is."""
    answers = await _ask(cli, "release %d held runs", replace(choice, status=RunStatus.HELD), ask)
    told = {"released": answers["asked"], "not_held_any_more": answers["left"]}
    print_json(told) if cli.json else say(f"{told['released']} runs released, {told['not_held_any_more']} were not held any more")


async def _ask(cli: Cli, question: str, choice: Choice, ask: Ask) -> Counter[str]:
    async with cli.client() as client:
        chosen = await _chosen(client, choice)
        if chosen and not choice.yes:
            confirm(f"{question % len(chosen)} ({named([run.id for run in chosen])})?")
        return Counter([await _answer(client.get(run.id), ask) for run in chosen])


async def _chosen(client: AsyncClient, choice: Choice) -> list[RunDescription]:
    found = every(lambda after: client.runs(
        workflow=choice.workflow, status=choice.status, attributes=parsed_attributes(choice.attribute),
        since=parsed_time(choice.since, "--since"), until=parsed_time(choice.until, "--until"), after=after, limit=PAGE,
    ))  # fmt: skip
    return [run async for run in found if choice.takes(run)]


async def _answer(handle: AsyncHandle[Any], ask: Ask) -> str:
    try:
        answer = await ask(handle)
    except IllegalTransition:
        return "left"
    return "left" if answer == "already_terminal" else "asked"
