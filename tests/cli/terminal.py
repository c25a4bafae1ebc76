"""Runs the command line as a user would and returns what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from romulus.cli.main import root

ORDERS = """
import romulus

@romulus.step
async def charge(order: str) -> str:
    return f"receipt for {order}"

@romulus.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order)
    await romulus.wait_for_event("packed", correlation_id=order, type=bool)
    return receipt

app = romulus.App(workflows=[checkout])
not_an_app = 3
"""


@dataclass
class Said:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


def romulus_here(*arguments: str) -> Said:
    """Run a command in this process."""
    result = CliRunner().invoke(root, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def romulus_process(*arguments: str, cwd: Path, timeout: float = 100) -> Said:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "romulus.cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )
    return Said(done.returncode, done.stdout, done.stderr)
