"""Write the tables of external operations, made from `romulus.core.operations`, into their page.

uv run python scripts/operations_table.py           # after TABLE or ENDINGS changed
uv run python scripts/operations_table.py --check   # exit 1 when the page shows other tables
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from romulus.core.operations import ENDINGS, TABLE, OperationState, after

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "operations.md"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def endings() -> str:
    """Return what each ending of a send makes of the operation."""
    rows = [f"| {ending} | {after(OperationState.ARMED, event)} |" for ending, event in ENDINGS.items()]
    return "\n".join(["| how the body of an armed operation ended | the operation is then |", "|---|---|", *rows, ""])


def table() -> str:
    """Return every event: from where, to where."""
    rows = [f"| {event} | {', '.join(sorted(moves))} | {', '.join(sorted(set(moves.values())))} |" for event, moves in TABLE.items()]
    return "\n".join(["| an operation may | while it is | and is then |", "|---|---|---|", *rows, ""])


def page(text: str) -> str:
    """Return the page *text* with its generated parts made anew."""
    parts = {"endings": endings(), "table": table()}
    return BLOCK.sub(lambda match: match[1] + parts[match[2]] + match[3], text)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare; return the exit code."""
    before = PAGE.read_text(encoding="utf-8")
    after_ = page(before)
    if "--check" in arguments:
        return int(before != after_)
    PAGE.write_text(after_, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
