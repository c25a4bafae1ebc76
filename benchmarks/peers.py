"""What other engines reached on the same work: the result lines of their drivers, put beside ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .figure import Figure, PeerField
from .measures import median


@dataclass(frozen=True, slots=True)
class Peers:
    """The lines of one file: JSON objects with `peer`, `w` and the figures of that workload."""

    source: str  # which run they come from
    lines: Sequence[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        """Return every peer, in the order first named."""
        return list(dict.fromkeys(str(line["peer"]) for line in self.lines))

    def value(self, peer: str, where: PeerField) -> float | None:
        """Return the median of what the peer's lines say, None where they say nothing."""
        found = [float(line[where.field]) for line in self.lines if line["peer"] == peer and _has(line, where)]
        return median(found) if found else None


def read(path: Path) -> Peers:
    """Return the peers' lines in *path*.

    Raises:
        ValueError: a line is no such object.
    """
    lines = [_line(text, number) for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if text.strip()]
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return Peers(f"{path.name}, written {written:%Y-%m-%d %H:%M} UTC", lines)


def table(figures: Sequence[Figure], medians: dict[str, float], peers: Peers, show: Any) -> list[list[str]]:
    """Return a row for each figure that a peer has too: ours, then each peer's."""
    rows: list[list[str]] = []
    for figure in figures:
        theirs = [peers.value(name, figure.peer) if figure.peer else None for name in peers.names]
        if any(value is not None for value in theirs):
            values = [medians.get(figure.key), *theirs]
            rows.append([figure.key, figure.what, figure.unit, *("" if value is None else show(value) for value in values)])
    return rows


def _line(text: str, number: int) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(text)
    if not {"peer", "w"} <= set(line):
        raise ValueError(f"line {number} names no peer and workload: {text[:80]}")
    return line


def _has(line: dict[str, Any], where: PeerField) -> bool:
    sized = where.size is None or line.get(where.size[0]) == where.size[1]
    return line["w"] == where.workload and where.field in line and sized
