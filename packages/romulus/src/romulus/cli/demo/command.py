"""`romulus demo`: plays its acts on a store of its own and ends with 0 only if every check holds."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from romulus.app import loops
from romulus.cli.command import FAILED, Exit, guarded
from romulus.cli.output import say
from romulus.client import AsyncClient

from . import kill, pause, recover
from .stage import DemoFailed, Stage


def add_to(root: typer.Typer) -> None:
    """Add the command."""
    root.command("demo")(demo)


def demo(
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Keep store, effects file and worker logs there.")] = None,
) -> None:
    """Show a workflow that survives kill -9, a late update that is refused, and a write that is not repeated."""

    def play() -> None:
        with _directory(keep) as directory:
            loops.run(_play(directory))

    guarded(play)


async def _play(directory: Path) -> None:
    url = f"sqlite:///{directory / 'demo.db'}"
    say(f"store: {url}")
    async with AsyncClient(url) as client:
        with Stage(directory, client, url) as stage:
            await kill.play(stage)
            await pause.play(stage)
            await recover.play(stage)
    if stage.failed:
        raise DemoFailed(f"{len(stage.failed)} checks did not hold: {'; '.join(stage.failed)}")
    say("\nall checks hold".strip())


@contextmanager
def _directory(keep: Path | None) -> Generator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="romulus-demo-") as name:
            yield Path(name).resolve()
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Exit(FAILED, f"cannot use {keep}: {error.strerror}") from None
    if (keep / "demo.db").exists():
        raise Exit(FAILED, f"{keep} has the store of an earlier demo; give another directory")
    yield keep.resolve()
