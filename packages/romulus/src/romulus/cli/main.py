"""Puts the commands together."""

from __future__ import annotations

import typer

from . import demo, doctor, events, migrate, operations, runs, waits, worker

root = typer.Typer(
    help="Workflows that survive a restart.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
demo.add_to(root)
worker.add_to(root)
root.add_typer(runs.group, name="runs")
root.add_typer(events.group, name="events")
waits.add_to(root)
root.add_typer(operations.group, name="operations")
migrate.add_to(root)
doctor.add_to(root)
