"""Write the reference pages of the command line, the settings and the errors from the code.

uv run python scripts/reference.py           # after a command, a setting or an error changed
uv run python scripts/reference.py --check   # exit 1 when a page says something else than the code
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

import romulus
from romulus.app.settings import TABLE
from romulus.cli.main import root
from romulus.core import errors

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
BLOCK = re.compile(r"(<!-- generated -->\n).*?(<!-- end -->)", re.DOTALL)
COMMON = ("--store", "--namespace", "--json")  # said once, not at each command


def commands() -> str:
    """Return every command with its arguments and options."""
    return "\n".join(_command(path, each) for path, each in _walk(typer.main.get_command(root), "romulus"))


def settings() -> str:
    """Return the table of settings."""
    rows = [(f"`{setting.variable}`", f"`{setting.default}`", setting.meaning) for setting in TABLE]
    return _table(("variable", "default", "meaning"), rows)


def error_classes() -> str:
    """Return the tree of errors as the code draws it, and what each class says of itself."""
    drawing = (inspect.getdoc(errors) or "").split("\n\n", 1)[1].partition("\n\nPrivate")[0]
    rows = [(_named(each), _first(each)) for each in public_errors()]
    return f"```text\n{drawing}\n```\n\n{_table(('error', 'meaning'), rows)}"


def public_errors() -> list[type[Exception]]:
    """Return every class of the tree, in the order of the module."""
    return [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.RomulusError)]


GENERATED: dict[str, Callable[[], str]] = {"command-line.md": commands, "settings.md": settings, "errors.md": error_classes}


def rewritten(name: str) -> tuple[str, str]:
    """Return the page as it is, and as it would be."""
    text = (PAGES / name).read_text(encoding="utf-8")
    made = GENERATED[name]()
    return text, BLOCK.sub(lambda match: f"{match[1]}{made}\n{match[2]}", text)


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}")


def _command(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.opts[-1] not in COMMON]
    common = [option for option in COMMON if any(option in each.opts for each in command.params)]
    lines = [f"### `{' '.join([path, *map(_argument, arguments)])}`", "", " ".join((command.help or "").split()), ""]
    rows = [(f"`{_argument(each)}`", each.help or "") for each in arguments] + [(_option(each), _meaning(each)) for each in options]
    if rows:
        lines += [_table(("", ""), rows), ""]
    if common:
        lines += ["Also " + ", ".join(f"`{option}`" for option in common) + ".", ""]
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return f"{names}{value}" + (" (required)" if parameter.required else "")


def _meaning(parameter: Any) -> str:
    given = parameter.default not in (None, False, "", ()) and not callable(parameter.default)
    return (parameter.help or "") + (f" Default: {parameter.default}." if given else "")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *[tuple(cell.replace("|", "\\|") for cell in row) for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _named(error: type[Exception]) -> str:
    return f"`romulus.{error.__name__}`" if hasattr(romulus, error.__name__) else f"`romulus.core.errors.{error.__name__}`"


def _first(error: type[Exception]) -> str:
    return (inspect.getdoc(error) or "").split("\n", 1)[0]


def main() -> int:
    """Rewrite the pages, or with --check only compare them."""
    stale = [name for name in GENERATED if len(set(rewritten(name))) > 1]
    if "--check" not in sys.argv[1:]:
        for name in stale:
            (PAGES / name).write_text(rewritten(name)[1], encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name} {'is out of date' if '--check' in sys.argv[1:] else 'written'}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
