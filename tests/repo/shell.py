"""A shell that does what a page says, and waits for what the page says it prints."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PATIENCE_S = 40.0
OPEN_END = "…"  # in an expected line: whatever stands here


@dataclass(frozen=True)
class Command:
    """A command, and the lines it is to print, in order, others between them allowed."""

    text: str
    prints: list[str]


def commands(block: str) -> list[Command]:
    """Return the commands of a `console` block."""
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:].partition("  #")[0].rstrip(), []))
        elif line.strip() and found:
            found[-1].prints.append(line.strip())
    return found


class Shell:
    """One bash with job control in *directory*, with this Python and its commands first on PATH."""

    def __init__(self, directory: Path, **variables: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{variables.pop('PATH', os.environ['PATH'])}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ROMULUS_")}
        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, env={**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "TZ": "UTC", **variables},
        )  # fmt: skip
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.said: list[str] = []
        self.number = 0
        threading.Thread(target=self._read, daemon=True).start()
        self._write("set -m")

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write("kill -9 $(jobs -p) 2>/dev/null; exit")
        self.bash.communicate(timeout=PATIENCE_S)

    def do(self, command: Command) -> int:
        """Run *command*, wait for what it is to print, and return its exit code."""
        begin, self.number = len(self.said), self.number + 1
        mark = f"@@{self.number} "
        self._write(f"{command.text}\necho {mark}$?")
        until = time.monotonic() + PATIENCE_S
        while (end := self._ended(begin, mark)) is None or not _in_order(command.prints, self.said[begin:]):
            self._hear(until, command, begin)
        return end

    def _ended(self, begin: int, mark: str) -> int | None:
        return next((int(line.removeprefix(mark)) for line in self.said[begin:] if line.startswith(mark)), None)

    def _hear(self, until: float, command: Command, begin: int) -> None:
        try:
            line = self.lines.get(timeout=max(until - time.monotonic(), 0))
        except queue.Empty:
            line = None
        if line is None:
            raise AssertionError(f"$ {command.text}\nwas to print\n  {command.prints}\nand printed\n" + "\n".join(self.said[begin:]))
        self.said.append(line.strip())

    def _read(self) -> None:
        assert self.bash.stdout is not None
        for line in self.bash.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _write(self, text: str) -> None:
        assert self.bash.stdin is not None
        self.bash.stdin.write(text + "\n")
        self.bash.stdin.flush()


def _in_order(expected: list[str], said: list[str]) -> bool:
    rest = iter(said)
    return all(any(_fits(line, each) for each in rest) for line in expected)


def _fits(expected: str, line: str) -> bool:
    """Compare word by word: tables are as wide as what stands in them."""
    parts = [re.escape(part.strip()) for part in " ".join(expected.split()).split(OPEN_END)]
    return re.fullmatch(".*".join(parts), " ".join(line.split())) is not None
