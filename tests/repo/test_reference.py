"""The reference pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from romulus.core.machine import RunStatus
from romulus.core.record import HoldKind
from scripts import reference
from tests.repo.files import ROOT

DEPTH = 4  # characters of the drawing for each level


@pytest.mark.parametrize("name", reference.GENERATED)
def test_a_reference_page_is_made_from_the_code_of_today(name: str) -> None:
    stands, made = reference.rewritten(name)

    assert stands == made, "run `uv run python scripts/reference.py`"


def test_a_page_that_lags_behind_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    (tmp_path / "settings.md").write_text("<!-- generated -->\nold\n<!-- end -->\n", encoding="utf-8")

    stands, made = reference.rewritten("settings.md")

    assert "old" in stands
    assert "ROMULUS_LEASE" in made


def test_the_drawing_of_the_errors_is_their_tree() -> None:
    drawn = dict(_drawn((ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")))
    real = {error.__name__: error.__bases__[0].__name__ for error in reference.public_errors()}

    assert drawn == {**real, "RomulusError": ""}


@pytest.mark.parametrize("word", [*RunStatus, *HoldKind])
def test_every_status_and_every_kind_of_hold_is_explained(word: str) -> None:
    page = (ROOT / "docs/reference/statuses.md").read_text(encoding="utf-8")

    assert re.search(rf"^\| `?{re.escape(word)}`? \|", page, re.MULTILINE)


def _drawn(page: str) -> list[tuple[str, str]]:
    """Return each name of the drawing, and the name it hangs below."""
    found: list[tuple[str, str]] = []
    above: list[str] = []
    for line in page.partition("```text\n")[2].partition("```")[0].splitlines():
        match = re.match(r"(?P<branch>[│ ├└─]*)(?P<name>\w+)", line)
        assert match, line
        level = len(match["branch"]) // DEPTH
        found.append((match["name"], above[level - 1] if level else ""))
        above[level:] = [match["name"]]
    return found
