"""The bulk form of `operations resolve`: for the day a provider was down, operations chosen by what they have, after a confirmation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import typer

from romulus.client import AsyncClient, OperationRecord
from romulus.client.operations import Resolution
from romulus.core.errors import OperationConflict, OperationNotFound
from romulus.core.operations import UNSETTLED, OperationState

from .choosing import PAGE, confirm, every, named
from .command import USAGE, Exit
from .reading import parsed_time

AT_ONCE: Final = 100  # resolutions under way

Name = Annotated[str | None, typer.Option("--name", help="Operations of this name.")]
Workflow = Annotated[str | None, typer.Option("--workflow", help="Operations of runs of this workflow.")]
State = Annotated[str | None, typer.Option("--state", help="held (unless given), unknown or resend.")]
Since = Annotated[str | None, typer.Option("--since", help="Operations first sent at or after this time.")]
Until = Annotated[str | None, typer.Option("--until", help="Operations first sent before this time.")]
Every = Annotated[bool, typer.Option("--all", help="Every operation in that state.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which operations are meant."""

    name: str | None
    workflow: str | None
    state: str | None
    since: str | None
    until: str | None
    every: bool
    yes: bool

    @property
    def empty(self) -> bool:
        """Whether nothing at all was chosen."""
        return not (self.every or self.name or self.workflow or self.since or self.until)


def check(operations: Sequence[str], choice: Choice) -> None:
    """Refuse a command that names operations and others as well, or none."""
    if not operations and choice.empty:
        raise Exit(USAGE, "name operations, or say which: --name, --workflow, --since, --until or --all, of those that are held")
    if operations and not (choice.empty and choice.state is None):
        raise Exit(USAGE, "name operations or choose them by options, not both")
    if choice.state is not None and choice.state not in UNSETTLED:
        raise Exit(USAGE, f"--state is {choice.state}; what can be resolved is {', '.join(UNSETTLED)}")


async def resolve_all(
    client: AsyncClient, verb: str, choice: Choice, resolution: Resolution, reason: str, reviewer: str
) -> dict[str, int]:  # fmt: skip
    """Resolve every chosen operation, once the user has agreed; one that is settled meanwhile is left as it is."""
    chosen = await _chosen(client, choice)
    if chosen and not choice.yes:
        confirm(_question(verb, chosen))
    answers: Counter[str] = Counter()
    for start in range(0, len(chosen), AT_ONCE):
        some = [_answer(client, each.id, resolution, reason, reviewer) for each in chosen[start : start + AT_ONCE]]
        answers.update(await asyncio.gather(*some))
    return {"resolved": answers["resolved"], "settled_meanwhile": answers["settled_meanwhile"]}


async def _chosen(client: AsyncClient, choice: Choice) -> list[OperationRecord]:
    since, until = parsed_time(choice.since, "--since"), parsed_time(choice.until, "--until")
    found = every(lambda after: client.operations(state=choice.state or OperationState.HELD, after=after, limit=PAGE))
    return [each async for each in found if _is_meant(each, choice, since, until)]


def _is_meant(each: OperationRecord, choice: Choice, since: datetime | None, until: datetime | None) -> bool:
    sent = each.first_sent_at or each.created_at
    return (
        choice.name in (None, each.name)
        and choice.workflow in (None, each.workflow)
        and (since is None or sent >= since)
        and (until is None or sent < until)
    )


async def _answer(client: AsyncClient, operation: str, resolution: Resolution, reason: str, reviewer: str) -> str:
    try:
        await client.resolve_operation(operation, resolution, reason=reason, reviewer=reviewer)
    except (OperationConflict, OperationNotFound):
        return "settled_meanwhile"
    return "resolved"


def _question(verb: str, chosen: Sequence[OperationRecord]) -> str:
    names = ", ".join(f"{count} {name}" for name, count in sorted(Counter(each.name for each in chosen).items()))
    return f"resolve {len(chosen)} operations ({names}) as {verb}: {named([each.id for each in chosen])}?"
