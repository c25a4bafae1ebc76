"""The state diagram in the docs is that of the code."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from romulus.core.machine import TABLE
from tests.repo.files import ROOT


def script() -> ModuleType:
    """Return the script that writes the page."""
    spec = importlib.util.spec_from_file_location("state_diagram", ROOT / "scripts" / "state_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_table_that_is_in_force() -> None:
    assert script().main(["--check"]) == 0


def test_every_move_of_the_table_is_an_arrow() -> None:
    shown = script().diagram()

    for change, moves in TABLE.items():
        for before, after in moves.items():
            [arrow] = [line for line in shown.splitlines() if line.strip().startswith(f"{before} --> {after}:")]
            assert change in arrow
