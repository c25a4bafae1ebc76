"""How worker processes log: to stderr, lines of workflow and step code with their run's ID."""

from __future__ import annotations

import logging
import sys

from romulus.authoring.logger import RUN_ID

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(of_run)s%(message)s"


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log to stderr, unless this process has said already where its lines go."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_with_run)
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def level_of_lines() -> int | None:
    """Return the level this process logs at, None where nobody said where lines go."""
    root = logging.getLogger()
    return root.level if root.hasHandlers() else None


def _with_run(record: logging.LogRecord) -> bool:
    run_id = getattr(record, RUN_ID, "")
    record.of_run = f"[{run_id}] " if run_id else ""
    return True
