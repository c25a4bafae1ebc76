"""Medians and percentiles, and the memory of a process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

__all__ = ["median", "percentile", "resident_kb"]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that *percent* of *values* do not exceed; 100 is the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def resident_kb(pid: int | str = "self", *, peak: bool = False) -> int:
    """Return the resident memory of a process (Linux), now or at its highest."""
    field = "VmHWM:" if peak else "VmRSS:"
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
