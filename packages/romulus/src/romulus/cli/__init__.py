"""The command line: `romulus …`. Tables for people, `--json` for programs.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process."""
    from .main import root

    root(prog_name="romulus")


__all__ = ["main"]
