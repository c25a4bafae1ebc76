"""Write the state diagram of a run, made from the transition table in the code, into its page.

uv run python scripts/state_diagram.py           # after `romulus.core.machine.TABLE` changed
uv run python scripts/state_diagram.py --check   # exit 1 when the page shows another table
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from romulus.core.machine import GUARDS_CANCEL, LIVE, TABLE, TERMINAL, Change, RunStatus

PAGE = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "states.md"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def diagram() -> str:
    """Return the table as a Mermaid state diagram: one arrow for each pair of statuses, with every change that takes it."""
    arrows: dict[tuple[RunStatus, RunStatus], list[Change]] = defaultdict(list)
    for change, moves in TABLE.items():
        for before, after in moves.items():
            arrows[before, after].append(change)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> scheduled: start, later", "    [*] --> pending: start"]
    lines += [f"    {before} --> {after}: {', '.join(sorted(changes))}" for (before, after), changes in sorted(arrows.items())]
    lines += [f"    {status} --> [*]" for status in sorted(TERMINAL)]
    return "\n".join([*lines, "```", ""])


def table() -> str:
    """Return the table as a table: each change, from where, to where."""
    rows = [f"| {_starred(change)} | {_sources(moves)} | {_targets(moves)} |" for change, moves in TABLE.items()]
    return "\n".join(["| a run may | while it is | and is then |", "|---|---|---|", *rows, ""])


def page(text: str) -> str:
    """Return the page *text* with its generated parts made anew."""
    parts = {"diagram": diagram(), "table": table()}
    return BLOCK.sub(lambda match: match[1] + parts[match[2]] + match[3], text)


def _starred(change: Change) -> str:
    return f"{change} *" if change in GUARDS_CANCEL else str(change)


def _sources(moves: Mapping[RunStatus, RunStatus]) -> str:
    return "anything live" if frozenset(moves) == LIVE else ", ".join(sorted(moves))


def _targets(moves: Mapping[RunStatus, RunStatus]) -> str:
    return ", ".join(sorted(set(moves.values())))


def main(arguments: list[str]) -> int:
    """Write the page, or with --check only compare; return the exit code."""
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" in arguments:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
