"""`romulus doctor`: the settings in force, and whether the store, the workers and this Python are fit."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import typer

from romulus.app.loops import loop_factory
from romulus.app.settings import TABLE, InForce, in_force, value_of
from romulus.client import OperationRecord, RunDescription
from romulus.client.source import Opened, Source
from romulus.core.errors import RomulusError
from romulus.core.machine import CLAIMABLE, RunStatus
from romulus.store.contract import QueuedPool
from romulus.store.urls import without_secrets

from .command import FAILED, Cli, Exit, command
from .migrate import ABSENT, MEMORY, checked_schema
from .output import print_json, print_table, say

FREE_MIN_BYTES = 256 * 1024 * 1024
LOOK_MAX = 1_000  # runs of a status that are looked at
ASSURANCE = {"sqlite": "local: one machine, every process that can open the file is trusted"}
OK, NOTE, BAD = "ok", "note", "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found."""

    check: str
    state: str  # ok | note | failed
    detail: str


SETTING_COLUMNS: dict[str, Callable[[InForce], object]] = {
    "SETTING": lambda setting: setting.variable,
    "VALUE": lambda setting: setting.value,
    "FROM": lambda setting: setting.source,
    "MEANING": lambda setting: setting.meaning,
}
FINDING_COLUMNS: dict[str, Callable[[Finding], object]] = {
    "CHECK": lambda finding: finding.check,
    "STATE": lambda finding: finding.state,
    "DETAIL": lambda finding: finding.detail,
}


def add_to(root: typer.Typer) -> None:
    """Add the command."""
    command(root, "doctor")(doctor)


async def doctor(cli: Cli) -> None:
    """Print the settings in force and check what a worker needs. Exit code 1 where a check fails."""
    settings = [_without_secrets(setting) for setting in in_force()]
    findings = [_python(), _loop(), *_settings(), *await _store(cli)]
    if cli.json:
        print_json({"settings": settings, "findings": findings})
    else:
        print_table(settings, SETTING_COLUMNS, "settings")
        say("")
        print_table(findings, FINDING_COLUMNS, "findings")
    failed = [finding.check for finding in findings if finding.state == BAD]
    if failed:
        raise Exit(FAILED, f"not fit: {', '.join(failed)}")


def _python() -> Finding:
    return Finding("python", OK, f"{platform.python_version()}, romulus {_version('romulus-engine')}, SQLite {apsw.sqlite_lib_version()}")


def _loop() -> Finding:
    if loop_factory() is None:
        return Finding("event loop", NOTE, "asyncio's own; the extra romulus-engine[uvloop] is faster")
    return Finding("event loop", OK, f"uvloop {_version('uvloop')}")


def _settings() -> list[Finding]:
    wrong: list[Finding] = []
    for setting in TABLE:
        try:
            value_of(setting.variable)
        except RomulusError as error:
            wrong.append(Finding("settings", BAD, str(error)))
    return wrong or [Finding("settings", OK, "every variable can be read")]


async def _store(cli: Cli) -> list[Finding]:
    source = Source(cli.store)
    try:
        if cli.store != MEMORY and ABSENT in (state := await checked_schema(cli.store)):
            return [Finding("store", NOTE, state)]
        opened = await source.acquire()
    except RomulusError as error:
        return [Finding("store", BAD, str(error))]
    try:
        return [*await _open_store(opened), *await _workers(opened, cli.namespace), *await _runs(cli)]
    except RomulusError as error:
        return [Finding("store", BAD, str(error))]
    finally:
        await source.release()


async def _open_store(opened: Opened) -> list[Finding]:
    store, host = opened.store, opened.host
    before = host.monotonic()
    apart = abs(await store.now() - host.wall()) / 1_000
    found = [Finding("store", OK, f"{store.url} answers in {(host.monotonic() - before) / 1_000:.1f} ms, clocks {apart:.1f} ms apart")]
    kind = urlsplit(store.url).scheme
    if kind in ASSURANCE:
        found.append(Finding("assurance", OK, ASSURANCE[kind]))
    warnings = getattr(store, "warnings", None)  # a store may look at itself
    if warnings is not None:
        found += [Finding("database", NOTE, text) for text in await warnings()]
    path = Path(store.url.removeprefix("sqlite:///"))
    if kind == "sqlite" and path.is_file():
        found.append(_room(path))
    return found


def _room(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    return Finding("disk", OK if free >= FREE_MIN_BYTES else BAD, f"{free // 2**20:,} MiB free beside {path}")


async def _workers(opened: Opened, namespace: str) -> list[Finding]:
    rows = await opened.store.workers(namespace)
    live = [row for row in rows if row.status == "live"]
    found = Finding("workers", OK if live else NOTE, f"{len(live)} live of {len(rows)} registered in namespace {namespace!r}")
    served = {pool for row in live for pool in json.loads(row.pools)}
    return [found, _pools(await opened.store.queued_pools(namespace), served)]


def _pools(queued: Sequence[QueuedPool], served: Collection[str]) -> Finding:
    """Say in which pools attempts wait that no live worker serves, or that workers could not read."""
    unserved = [f"{each.attempts:,} in {each.pool!r}" for each in queued if each.pool not in served]
    unread = [f"{each.unread:,} in {each.pool!r} (romulus runs show {each.unread_run})" for each in queued if each.unread]
    found = [f"attempts wait for a worker that serves their pool: {', '.join(unserved)}"] if unserved else []
    if unread:
        found.append(f"attempts wait for a worker whose code and codec can read them: {', '.join(unread)}")
    return Finding("pools", NOTE, "; ".join(found)) if found else Finding("pools", OK, "a live worker serves each in which attempts wait")


async def _runs(cli: Cli) -> list[Finding]:
    """Say which runs go on only if somebody does something."""
    async with cli.client() as client:
        held = await client.runs(status=RunStatus.HELD, limit=LOOK_MAX)
        idle = [run for status in sorted(CLAIMABLE) for run in await client.runs(status=status, limit=LOOK_MAX)]
        operations = await client.operations(state="held", limit=LOOK_MAX)
        blind = [each for each in await client.operations(limit=LOOK_MAX) if not (each.idempotent or each.has_lookup)]
    stranded = [run for run in idle if run.stranded]
    return [
        _waiting("held operations", operations, "waiting for a person: romulus operations list --state held"),
        _blind(blind),
        _waiting("held runs", held, "waiting for a person: romulus runs list --status held says why"),
        _waiting("stranded runs", stranded, f"waiting for a worker that serves {_workflows(stranded)}"),
    ]


def _blind(operations: Sequence[OperationRecord]) -> Finding:
    """Say which operations nothing but a person can settle once an answer is lost."""
    names = ", ".join(sorted({each.name for each in operations}))
    if not names:
        return Finding("operations", OK, "each has a lookup or a key")
    return Finding("operations", NOTE, f"{names}: neither a lookup nor idempotent=True, so each lost answer waits for a person")


def _waiting(check: str, runs: Sequence[object], remedy: str) -> Finding:
    if not runs:
        return Finding(check, OK, "none")
    return Finding(check, NOTE, f"{len(runs):,}{'' if len(runs) < LOOK_MAX else ' or more'} {remedy}")


def _workflows(runs: Iterable[RunDescription]) -> str:
    return ", ".join(sorted({f"{run.workflow} {run.version}" for run in runs}))


def _without_secrets(setting: InForce) -> InForce:
    return replace(setting, value=without_secrets(setting.value))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"
