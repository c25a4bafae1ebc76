"""Statements that a worker executed, with their answers: recorded once for each released schema, and kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self


class Tape:
    """Statements in the order they were answered: number of the connection, SQL, values, answer; a string is a mark."""

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        self.entries = list(entries)
        self._connections: dict[Any, int] = {}

    def add(self, connection: Any, sql: str, values: Any, answer: Any) -> None:
        """Note a statement."""
        number = self._connections.setdefault(connection, len(self._connections))
        self.entries.append([number, sql, plainly(values), plainly(answer)])

    def mark(self, name: str) -> None:
        """Note a moment."""
        self.entries.append(name)

    def until(self, mark: str) -> Self:
        """Cut off what comes before a mark, and return it."""
        at = self.entries.index(mark)
        before, self.entries = type(self)(self.entries[:at]), self.entries[at + 1 :]
        return before

    def save(self, path: Path) -> None:
        """Write the tape; each SQL text once."""
        texts = sorted({entry[1] for entry in self.entries if not isinstance(entry, str)})
        entries = [e if isinstance(e, str) else [e[0], texts.index(e[1]), *e[2:]] for e in self.entries]
        lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in ([texts], *entries)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the tape of a schema's release."""
        (texts,), *entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return cls([e if isinstance(e, str) else [e[0], texts[e[1]], *e[2:]] for e in entries])


def plainly(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value).hex()}
    return value if value is None or isinstance(value, (str, int, float)) else [plainly(item) for item in value]


def typed(value: Any) -> Any:
    """Return a value as the driver takes it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return [typed(item) for item in value] if isinstance(value, list) else value
