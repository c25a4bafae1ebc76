"""Every snippet of the README and the docs: it compiles, the names it uses are there, and programs and sessions do what the page says."""

from __future__ import annotations

import ast
import importlib
import re
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

from tests.repo.files import ROOT
from tests.repo.pages import FILE, RUN, Block, blocks, pages
from tests.repo.servers import readers_server
from tests.repo.shell import Command, Shell, commands

OURS = ("romulus", "remus")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
SNIPPETS = [block for page in PAGES.values() for block in blocks(page) if block.language == "python"]
SESSIONS = [name for name, page in PAGES.items() if any(block.happens for block in blocks(page))]


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


def perform(block: Block, shell: Shell, directory: Path) -> None:
    """Do what *block* says, in *directory*."""
    if block.mark.startswith(FILE):
        (directory / block.mark.removeprefix(FILE)).write_text(block.code, encoding="utf-8")
    elif block.mark == RUN:
        (directory / "program.py").write_text(block.code, encoding="utf-8")
        code = shell.do(Command("python program.py", []))
        assert code == 0, "\n".join([block.place, *shell.said])
    else:
        for command in commands(block.code):
            shell.do(command)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.place)
def test_a_snippet_compiles_and_uses_only_names_that_exist(snippet: Block) -> None:
    compile(snippet.code, snippet.place, "exec")

    assert missing(snippet.code) == []


@pytest.mark.process
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SESSIONS)
def test_the_programs_and_sessions_of_a_page_do_what_it_says(name: str, tmp_path: Path) -> None:
    happening = [block for block in blocks(PAGES[name]) if block.happens]
    with ExitStack() as stack:
        directory, variables = tmp_path, dict[str, str]()
        if any("pg_ctl" in block.code for block in happening):
            directory, variables = stack.enter_context(readers_server())
        shell = stack.enter_context(Shell(directory, **variables))
        for block in happening:
            perform(block, shell, directory)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_links_to_is_there(name: str) -> None:
    page = PAGES[name]

    assert [target for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_fence_says_nothing_that_is_not_understood(name: str) -> None:
    odd = [block.place for block in blocks(PAGES[name]) if block.mark and not block.happens]

    assert odd == []


def test_the_readme_begins_with_the_quickstart() -> None:
    first = next(each for each in SNIPPETS if each.place.startswith("README.md"))

    assert "app.run(checkout.options(" in first.code


def test_a_name_that_does_not_exist_is_found() -> None:
    assert missing("import romulus\nromulus.no_such_name()") == ["romulus.no_such_name"]


def test_a_session_that_prints_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.repo.shell.PATIENCE_S", 1.0)

    with Shell(tmp_path) as shell, pytest.raises(AssertionError, match="was to print"):
        shell.do(Command("echo two; echo one", ["one", "two"]))


def test_a_program_that_fails_is_found(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell, pytest.raises(AssertionError, match="boom"):
        perform(Block("page:1", "python", RUN, "raise ValueError('boom')"), shell, tmp_path)


def test_commands_and_what_they_print_are_told_apart() -> None:
    assert commands("$ a b   # why\none\n\n  two …\n$ c\n") == [Command("a b", ["one", "two …"]), Command("c", [])]


@pytest.mark.parametrize("index", sorted(ROOT.glob("docs/*/README.md")), ids=lambda path: path.parent.name)
def test_every_page_is_in_its_index(index: Path) -> None:
    listed = set(LINK.findall(index.read_text(encoding="utf-8")))

    assert {page.name for page in index.parent.glob("*.md") if page != index and not page.name[0].isdigit()} - listed == set()
