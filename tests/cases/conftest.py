"""The cases start real processes."""

from __future__ import annotations

from tests.processes.stage import stage

__all__ = ["stage"]
