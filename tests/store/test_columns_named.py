"""An INSERT that names no columns is refused once a later schema adds one, while workers of the release before go on (RB-58)."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from romulus.store import postgres, sqlite

INSERT = re.compile(r"\b(?:INSERT|REPLACE)\b[A-Z ]* INTO ([\w.{}]+)( \([\w{])?")


@pytest.mark.parametrize("store", [sqlite, postgres])
def test_every_insert_names_its_columns(store: ModuleType) -> None:
    sources = list(Path(store.__path__[0]).glob("*.py"))
    found = [(path.name, *insert.groups()) for path in sources for insert in INSERT.finditer(path.read_text(encoding="utf-8"))]

    assert [(name, table) for name, table, columns in found if columns is None] == []
    assert {table.removeprefix("romulus.") for _, table, _ in found} >= {"runs", "journal", "attempts", "operations", "workers", "inbox"}
