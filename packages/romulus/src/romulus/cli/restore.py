"""`romulus restore`: begin a new incarnation of a store that was put back from a backup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from romulus.client.source import Source
from romulus.core import requests
from romulus.core.duration import instant, to_datetime
from romulus.core.errors import ConfigurationError
from romulus.core.machine import RunStatus
from romulus.core.record import Generation, HoldKind, Run
from romulus.core.restoring import Restored, awaited
from romulus.core.transition import Next
from romulus.store.contract import RunFilter, Store
from romulus.store.urls import without_secrets

from .choosing import PAGE, confirm
from .command import USAGE, Cli, Exit, command
from .migrate import ABSENT, MEMORY, POSTGRES, checked_schema
from .output import print_json, print_table, say
from .reading import parsed_time

RESTORE = (
    "{store}: when the backup is in place and before workers start, void every claim and hold the runs that may have sent "
    "operations since the backup"
)
SETTLED = "{store}: send the operations of runs from before the restore as usual, without a look whether they were sent before"
RELEASE = "{store}: let the runs go on that a restore holds"
COLUMNS: dict[str, Callable[[Run], object]] = {
    "RUN": lambda run: run.id,
    "NAMESPACE": lambda run: run.namespace,
    "WORKFLOW": lambda run: f"{run.workflow} {run.version}",
    "STATUS": lambda run: run.status,
    "HOLD": lambda run: run.hold_reason,
}


def add_to(root: typer.Typer) -> None:
    """Add the command."""
    command(root, "restore")(restore)


async def restore(
    cli: Cli,
    since: Annotated[
        str | None, typer.Option("--since", help="Until when the backup has everything; else the time of the newest write in it.")
    ] = None,
    settled: Annotated[
        bool, typer.Option("--settled", help="Instead: all is settled at the providers, send operations of runs from before as usual.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Instead: let every run of the namespace go on that a restore holds for nothing known.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Begin a new incarnation after the store was put back from a backup."""
    if settled + release + (since is not None) > 1:
        raise Exit(USAGE, "--since, --settled and --release are three different things: give one of them")
    await _check_there(cli.store)
    at = parsed_time(since, "--since")
    if not yes:
        confirm((SETTLED if settled else RELEASE if release else RESTORE).format(store=cli.store) + "?")
    source = Source(cli.store)
    opened = await source.acquire()
    try:
        if settled:
            _print_count(cli, "trusted", await opened.store.trust(), "runs whose operations are sent as usual again: {}")
        elif release:
            _print_count(cli, "released", await _released(opened.store, cli.namespace), "runs that go on: {}")
        else:
            _print(opened.store.url, await opened.store.restore(None if at is None else instant(at, "--since")), cli.json)
    finally:
        await source.release()


async def _check_there(url: str) -> None:
    """Refuse what cannot have come from a backup, instead of making a new store there."""
    if url.startswith(POSTGRES):
        if ABSENT in await checked_schema(url):
            shown = without_secrets(url)
            raise ConfigurationError(f"{shown} has no schema romulus: there is nothing to restore in this database; check the URL")
        return
    if url == MEMORY:
        raise ConfigurationError("sqlite:// is a store in the memory of one process: there is nothing to restore")
    path = Path(url.removeprefix("sqlite:///")).expanduser()
    if url.startswith("sqlite:///") and not path.exists():
        raise ConfigurationError(f"{path} does not exist: put the backup there first")


async def _released(store: Store, namespace: str) -> int:
    """Release the runs that a restore holds although the backup has no operation of theirs that is open."""
    held = RunFilter(namespace, status=RunStatus.HELD)
    after: str | None = None
    count = 0
    while True:
        page = await store.runs(held, after, PAGE)
        for run in page.items:
            changed = await store.change(namespace, run.id, _let_go) if run.hold_kind == HoldKind.RESTORE else None
            count += changed is not None and changed[0] != changed[1]
        after = page.next
        if after is None:
            return count


def _let_go(run: Run, _: Generation, now: int) -> Next | None:
    return requests.release(run, now) if run.hold_kind == HoldKind.RESTORE else None


def _print_count(cli: Cli, name: str, count: int, words: str) -> None:
    print_json({name: count}) if cli.json else say(words.format(count))


def _print(store: str, restored: Restored, as_json: bool) -> None:
    told = _told(store, restored)
    if as_json:
        print_json(told)
        return
    say(f"{store}: a new incarnation; what was done between {to_datetime(restored.doubt.since):%Y-%m-%d %H:%M:%S} UTC and now is forgotten")
    say(f"runs that a worker had claimed and that go on from the backup: {restored.freed}; runs held: {len(restored.held)}")
    print_table(restored.held, COLUMNS, "runs held")
    left = [row for row in restored.operations if not row.awaited]
    if left:
        say(f"{len(left)} operations of runs that no longer await them are open: `romulus operations list`")


def _told(store: str, restored: Restored) -> dict[str, Any]:
    by_run = awaited(restored.operations)
    return {
        "store": store,
        "incarnation": restored.incarnation,
        "since": to_datetime(restored.doubt.since),
        "restored_at": to_datetime(restored.doubt.restored_at),
        "freed": restored.freed,
        "runs": [
            {
                "id": run.id, "namespace": run.namespace, "workflow": run.workflow, "version": run.version, "status": run.status,
                "hold_kind": run.hold_kind, "hold_reason": run.hold_reason,
                "operations": [{"id": row.id, "name": row.name, "state": row.state} for row in by_run.get(run.key, ())],
            }
            for run in restored.held
        ],
        "operations": [
            {"id": row.id, "namespace": row.namespace, "run_id": row.run_id, "name": row.name, "state": row.state}
            for row in restored.operations if not row.awaited
        ],
    }  # fmt: skip
