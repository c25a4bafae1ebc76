"""`romulus worker MODULE:APP` and `romulus workers`: work on runs, and see who does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from romulus.app.logs import log_to_stderr
from romulus.client import WorkerRecord

from .command import Cli, command, guarded
from .loading import load_app
from .output import print_page

WORKER_COLUMNS: dict[str, Callable[[WorkerRecord], object]] = {
    "WORKER": lambda worker: worker.id,
    "NAME": lambda worker: worker.name,
    "STATUS": lambda worker: worker.status,
    "PID": lambda worker: worker.pid,
    "WORKFLOWS": lambda worker: ", ".join(worker.workflows),
    "POOLS": lambda worker: ", ".join(worker.pools),
    "STARTED": lambda worker: worker.started_at,
    "RENEWED": lambda worker: worker.renewed_at,
}


def add_to(root: typer.Typer) -> None:
    """Add both commands."""
    root.command("worker")(worker)
    command(root, "workers")(workers)


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The App, as in orders:app.")],
    processes: Annotated[int, typer.Option("--processes", help="Worker processes.")] = 1,
    concurrency: Annotated[int | None, typer.Option("--concurrency", help="Attempts under way at once, in each process.")] = None,
    pool: Annotated[list[str] | None, typer.Option("--pool", help="Serve this pool; repeatable. Else: default.")] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="Store URL, where the App names none.")] = None,
    development: Annotated[bool, typer.Option("--development", help="Replay each run in a second interpreter too, and compare.")] = False,
) -> None:
    """Work on runs until SIGTERM or Ctrl-C, then stop gracefully."""
    if store is not None:
        os.environ["ROMULUS_STORE"] = store  # also for the processes it starts
    if development:
        os.environ["ROMULUS_DEVELOPMENT"] = "1"
    log_to_stderr()
    guarded(lambda: load_app(target).run_worker(concurrency=concurrency, pools=tuple(pool or ("default",)), processes=processes))


async def workers(cli: Cli) -> None:
    """List the workers of the namespace."""
    async with cli.client() as client:
        page = await client.workers()
    print_page(page, WORKER_COLUMNS, cli.json, "workers")
