"""Every Python snippet of the README and the docs: it compiles, and the names it uses are there."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.repo.files import ROOT

FENCE = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
OURS = ("romulus", "remus")


@dataclass(frozen=True)
class Snippet:
    """One fenced block, and where it stands."""

    place: str
    code: str


def snippets() -> list[Snippet]:
    """Return the Python blocks of every page for users."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
    return [
        Snippet(f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", textwrap.dedent(match["code"]))
        for page in sorted(pages)
        for text in [page.read_text(encoding="utf-8")]
        for match in FENCE.finditer(text)
    ]


def imported(tree: ast.Module) -> dict[str, ModuleType]:
    """Return our modules that the snippet imports, by the name it gives them."""
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {alias.asname or alias.name: importlib.import_module(alias.name) for alias in aliases if alias.name.split(".")[0] in OURS}


def missing(code: str) -> list[str]:
    """Return the names of ours that *code* uses and that are not there."""
    tree = ast.parse(code)
    ours = imported(tree)
    used = [
        (ours[ast.unparse(node.value)], node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ours
    ]
    used += [
        (importlib.import_module(node.module), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS
        for alias in node.names
    ]
    return sorted({f"{module.__name__}.{name}" for module, name in used if not hasattr(module, name)})


@pytest.mark.parametrize("snippet", snippets(), ids=lambda snippet: snippet.place)
def test_a_snippet_compiles_and_uses_only_names_that_exist(snippet: Snippet) -> None:
    compile(snippet.code, snippet.place, "exec")

    assert missing(snippet.code) == []


def test_the_readme_begins_with_the_quickstart() -> None:
    first = next(each for each in snippets() if each.place.startswith("README.md"))

    assert "app.run(checkout.options(" in first.code


def test_a_name_that_does_not_exist_is_found() -> None:
    assert missing("import romulus\nromulus.no_such_name()") == ["romulus.no_such_name"]
