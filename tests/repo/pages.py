"""The pages for users, and the blocks of code on them.

A fence says what becomes of its block: `python` is compiled and its names are looked up, `python run` is a program that is run,
`python file=NAME` is written to NAME, `console` holds commands after `$ ` and below each what it prints. The last three happen
in the order of the page, in one empty directory.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.repo.files import ROOT

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>python|console)(?: (?P<mark>[^\n]*))?\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
RUN, FILE, CONSOLE = "run", "file=", "console"


@dataclass(frozen=True)
class Block:
    """One fenced block, what its fence says of it, and where it stands."""

    place: str
    language: str
    mark: str
    code: str

    @property
    def happens(self) -> bool:
        """Whether it is executed, not only compiled."""
        return self.language == CONSOLE or self.mark == RUN or self.mark.startswith(FILE)


def pages() -> list[Path]:
    """Return every page for users."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")])


def blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* in order."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT)
    return [
        Block(f"{name}:{text.count(chr(10), 0, match.start()) + 1}", match["language"], match["mark"] or "", textwrap.dedent(match["code"]))
        for match in FENCE.finditer(text)
    ]
