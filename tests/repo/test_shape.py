"""The shape of the code: what a module is, and how long a function gets."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.repo.files import ROOT, functions, modules

LINES_MAX = 60


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_module_says_in_its_first_line_what_it_is(path: Path) -> None:
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n", 1)[0]

    assert first.endswith((".", ":")), f"a sentence is missing: {first!r}"


def test_no_function_is_longer_than_a_screen() -> None:
    longest = sorted((each for path in modules() for each in functions(path)), reverse=True)

    assert [place for lines, place in longest if lines > LINES_MAX] == []
