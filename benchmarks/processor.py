"""Processor time of a PostgreSQL server on this machine (Linux): all of its processes, those that have ended included."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def server_seconds(backend: int) -> float:
    """Return the seconds that the server of *backend* (a process ID) has used up to now.

    Raises:
        RuntimeError: it is not on this machine.
    """
    try:
        postmaster = int(_fields(backend)[1])
    except OSError as error:
        raise RuntimeError("the server's processor time can only be read on its own machine") from error
    everything = [_fields(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit() and _exists(int(path.name))]
    children = sum(int(fields[11]) + int(fields[12]) for fields in everything if int(fields[1]) == postmaster)
    return (children + sum(map(int, _fields(postmaster)[11:15]))) / TICKS


def _fields(pid: int) -> list[str]:
    """Return what /proc says of a process from its state on: 1 its parent, 11 and 12 its own ticks, 13 and 14 its dead children's."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()
