"""What happened in a simulated world, for people to read and for two runs of one seed to be compared by."""

from __future__ import annotations

from hashlib import blake2b

LINES_MAX = 20_000  # lines kept; the digest covers all


class Trace:
    """Lines with their virtual time and process, and a digest over them and over every crash point passed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._digest = blake2b(digest_size=16)

    def note(self, now: int, who: str, what: str) -> None:
        """Add a line."""
        line = f"{now / 1_000_000:12.6f}  {who:<10} {what}"
        self._digest.update(line.encode())
        if len(self.lines) < LINES_MAX:
            self.lines.append(line)

    def point(self, now: int, who: str, name: str) -> None:
        """Take a crash point into the digest only."""
        self._digest.update(f"{now} {who} {name}\n".encode())

    @property
    def digest(self) -> str:
        """Return the digest of all that happened so far."""
        return self._digest.hexdigest()

    def tail(self, count: int) -> str:
        """Return the last lines as text."""
        return "\n".join(self.lines[-count:])
