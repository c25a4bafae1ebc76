"""Runs both type checkers on the programs and reads what they found, line by line, in one notation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


class Found(NamedTuple):
    """What a checker says of one line: a revealed type, or the code of an error."""

    program: str
    line: int
    what: str


def expected(checker: str) -> set[Found]:
    """Return what the comments of the programs promise for *checker* ("mypy" or "pyright").

    `# reveals: T` is for both, `# mypy: T` and `# pyright: T` for one; `# refused: code rule` names mypy's code and pyright's rule.
    """
    return {
        Found(path.name, number, what)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for what in _promised(line, checker)
    }


def _promised(line: str, checker: str) -> list[str]:
    reveals = re.findall(rf"# (?:reveals|{checker}): (.*?)(?=  # |$)", line)
    refused = re.findall(r"# refused: (\S+) (\S+)", line)
    return reveals + [f"error {codes[checker == 'pyright']}" for codes in refused]


def mypy() -> set[Found]:
    """Return what mypy --strict finds in the programs."""
    options = ["--config-file=", "--strict", "--no-error-summary", "--output=json", f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}"]
    output = _run([sys.executable, "-m", "mypy", *options, *_programs()])
    found: set[Found] = set()
    for line in output.splitlines():
        message = json.loads(line)
        where = Path(message["file"]).name, message["line"]
        revealed = re.fullmatch(r'Revealed type is "(.*)"', message["message"])
        if revealed:
            found.add(Found(*where, plain(revealed[1])))
        elif message["severity"] == "error":
            found.add(Found(*where, f"error {message['code']}"))
    return found


def pyright(folder: Path) -> set[Found]:
    """Return what pyright strict finds in the programs; *folder* takes a copy and its settings."""
    shutil.copytree(PROGRAMS, folder / "programs")
    settings = {"include": ["programs"], "typeCheckingMode": "strict", "extraPaths": [str(ROOT / "packages/romulus/src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    output = _run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)])
    return {_by_pyright(diagnostic) for diagnostic in json.loads(output)["generalDiagnostics"]}


def _by_pyright(diagnostic: dict[str, object]) -> Found:
    span = diagnostic["range"]
    assert isinstance(span, dict)
    revealed = re.fullmatch(r'Type of ".*" is "(.*)"', str(diagnostic["message"]), re.DOTALL)
    what = plain(revealed[1]) if revealed else f"error {diagnostic.get('rule')}"
    return Found(Path(str(diagnostic["file"])).name, span["start"]["line"] + 1, what)


def plain(type_text: str) -> str:
    """Return a revealed type in the notation both share: no modules, no `def`, parameter lists in parentheses."""
    bare = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", type_text).replace("def (", "(")
    return re.sub(r"\[\[(.*?)\], ", r"[(\1), ", bare)


def _programs() -> list[str]:
    return sorted(str(path) for path in PROGRAMS.glob("*.py"))


def _run(command: list[str]) -> str:
    environment = {"MYPYPATH": str(ROOT / "packages/romulus/src"), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout
