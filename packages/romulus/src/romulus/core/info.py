"""What workflow code may know of its run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that the code belongs to, as `romulus.current_run()` gives it."""

    id: str
    workflow: str
    version: str
    started_at: datetime
    namespace: str
    generation: int
    depth: int = 0  # how many parents stand above it
