"""Write the versions of the tested environment into the root `pyproject.toml`.

    uv run python scripts/pin.py           # after the tests passed
    uv run python scripts/pin.py --check   # exit 1 when the file names other versions

`[tool.uv] constraint-dependencies` then makes a fresh clone resolve to the same versions; it says nothing about where they come from.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = {"romulus-engine", "remus-authority"}
BLOCK = re.compile(r"^(constraint-dependencies = \[\n)[^\]]*^\]$", re.MULTILINE)


def installed() -> dict[str, str]:
    """Return the version of each distribution in this environment but our own, by normalised name."""
    found = {re.sub(r"[-_.]+", "-", dist.name).lower(): dist.version for dist in distributions()}
    return {name: version for name, version in sorted(found.items()) if name not in OURS}


def pinned(text: str, versions: dict[str, str]) -> str:
    """Return the pyproject *text* with these exact *versions* as its constraints."""
    lines = "".join(f'  "{name}=={version}",\n' for name, version in versions.items())
    changed, count = BLOCK.subn(lambda match: f"{match[1]}{lines}]", text)
    if count != 1:
        raise SystemExit("pyproject.toml has no `constraint-dependencies = [` block of its own lines")
    return changed


def main(arguments: list[str]) -> int:
    """Pin, or with --check only compare; return the exit code."""
    path = ROOT / "pyproject.toml"
    before = path.read_text(encoding="utf-8")
    after = pinned(before, installed())
    if "--check" in arguments:
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
