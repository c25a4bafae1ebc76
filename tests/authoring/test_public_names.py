"""The package's public names: all that this release has, none of a later one, and a light import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import romulus

LATER = ["Authoriser", "Principal", "tool"]


@pytest.mark.parametrize("name", LATER)
def test_names_of_later_releases_are_absent(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(romulus, name)


def test_blocking_has_only_what_works() -> None:
    assert romulus.blocking.__all__ == ["BlockingChild", "call", "map", "sleep", "start", "wait_for_event"]


def test_every_public_name_is_listed_once_and_shown_by_dir() -> None:
    assert len(set(romulus.__all__)) == len(romulus.__all__)
    assert set(romulus.__all__) <= set(dir(romulus))


def test_importing_romulus_imports_no_driver_and_no_pydantic() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, romulus; print({'pydantic', 'apsw', 'asyncio', 'typer'} & set(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "set()"
