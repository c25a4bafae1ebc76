"""`sys.exit()` in a user's body ends that body, not its worker: asyncio hands the `SystemExit` of a task to the whole loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exited:
    """What a task returns in place of letting the `SystemExit` of its body through."""

    error: SystemExit
