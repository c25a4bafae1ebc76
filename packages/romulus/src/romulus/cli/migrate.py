"""`romulus migrate`: bring the store to this release's schema, or only say what that would do."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from romulus.client.source import Source
from romulus.core.errors import ConfigurationError
from romulus.host import RealHost
from romulus.store import open_store
from romulus.store.sqlite import place_of
from romulus.store.sqlite.migrate import check as checked_file
from romulus.store.sqlite.session import Session

from .command import FAILED, Cli, Exit, command
from .output import print_json, say

LOCK_WAIT = 1_500_000  # µs
MEMORY = "sqlite://"
POSTGRES = ("postgresql://", "postgres://")
CURRENT = "is up to date"
ABSENT = "does not exist yet"


def add_to(root: typer.Typer) -> None:
    """Add the command."""
    command(root, "migrate")(migrate)


async def migrate(
    cli: Cli,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 where something would be done.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Change nothing; print the SQL for an administrator (PostgreSQL).")] = False,
) -> None:
    """Make or upgrade the store's schema."""
    if sql:
        sys.stdout.write(await plain_sql(cli.store))
        return
    was = await checked_schema(cli.store)
    if not check:
        await _migrated(cli.store)
    done = was if check else await checked_schema(cli.store)
    if cli.json:
        print_json({"store": open_store(cli.store, RealHost()).url, "before": was, "after": done})
    else:
        say(done if was == done else f"{was}: done, {done}")
    if check and CURRENT not in was:
        raise Exit(FAILED)


async def _migrated(url: str) -> None:
    source = Source(url)
    await source.acquire()
    await source.release()


async def plain_sql(url: str) -> str:
    """Return the SQL that brings a PostgreSQL store to this release's schema."""
    if not url.startswith(POSTGRES):
        raise ConfigurationError("--sql is for PostgreSQL stores: a SQLite file is migrated when it is opened")
    from romulus.store.postgres import sql_for

    return await sql_for(url, RealHost(asyncio.get_running_loop()))


async def checked_schema(url: str) -> str:
    """Return in words how far the schema is; nothing is made or changed."""
    host = RealHost(asyncio.get_running_loop())
    open_store(url, host)  # refuses a wrong URL
    if url.startswith(POSTGRES):
        from romulus.store.postgres import checked

        return await checked(url, host)
    if url == MEMORY:
        raise ConfigurationError("sqlite:// is a store in the memory of one process: there is nothing to migrate")
    place = place_of(url.removeprefix("sqlite:///"))
    if not place.exists():
        return f"{place.shown} does not exist yet and would be made"
    session = Session(place, host, LOCK_WAIT)
    try:
        return f"{place.shown}: {checked_file(session)}"
    finally:
        session.close()
        host.close()
