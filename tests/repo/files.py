"""The files of the repository, as git knows them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def committed() -> list[Path]:
    """Return every committed file that is here."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def modules() -> list[Path]:
    """Return every non-empty module of the packages."""
    return sorted(path for path in ROOT.glob("packages/*/src/**/*.py") if path.stat().st_size)


def functions(path: Path) -> list[tuple[int, str]]:
    """Return (lines, place) of each function of a module."""
    return [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
