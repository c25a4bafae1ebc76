"""Puts the commands together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from . import demo, doctor, events, migrate, operations, restore, runs, waits, worker
from .output import say

root = typer.Typer(
    help="Workflows that survive a restart.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _print_version(asked: bool) -> None:
    if asked:
        say(version("romulus-engine"))
        raise typer.Exit


@root.callback()
def common(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")] = False,
) -> None:
    """Workflows that survive a restart."""


demo.add_to(root)
worker.add_to(root)
root.add_typer(runs.group, name="runs")
root.add_typer(events.group, name="events")
waits.add_to(root)
root.add_typer(operations.group, name="operations")
migrate.add_to(root)
restore.add_to(root)
doctor.add_to(root)
