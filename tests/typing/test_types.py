"""The public types as users' checkers see them: revealed types and wanted errors of the programs, by line."""

from __future__ import annotations

import ast
from pathlib import Path

import romulus
from tests.typing import checkers


def test_mypy_strict_finds_in_users_programs_what_their_comments_say() -> None:
    assert sorted(checkers.mypy()) == sorted(checkers.expected("mypy"))


def test_pyright_strict_finds_in_users_programs_what_their_comments_say(tmp_path: Path) -> None:
    assert sorted(checkers.pyright(tmp_path)) == sorted(checkers.expected("pyright"))


def test_every_reveal_in_the_programs_says_what_it_reveals() -> None:
    lines = [line for path in checkers.PROGRAMS.glob("*.py") for line in path.read_text().splitlines() if "reveal_type(" in line]
    assert len(lines) > 25
    assert [line for line in lines if "# reveals: " not in line and "# mypy: " not in line] == []


def test_the_names_checkers_see_are_the_names_that_exist() -> None:
    source = ast.parse(Path(romulus.__file__).read_text())
    [block] = [node for node in source.body if isinstance(node, ast.If)]
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(romulus.__all__)
    assert [name for name in romulus.__all__ if not hasattr(romulus, name)] == []
