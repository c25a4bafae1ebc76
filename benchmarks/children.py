"""Processes that a benchmark starts, waits for and kills."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

from .plan import Bench

PATIENCE_S = 300.0


class Child:
    """A process of `benchmarks.child`; killed for certain when the block ends."""

    def __init__(self, bench: Bench, role: str, *arguments: object) -> None:
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", bench.dump(), role, *map(str, arguments)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"ROMULUS_LEASE": str(bench.plan.lease_s)},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Return the process's ID."""
        return self.process.pid

    def wait_for(self, word: str) -> float:
        """Return the number that the process prints behind *word*, once it does.

        Raises:
            RuntimeError: the process ended, or took too long.
        """
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(word + " "):
                    return float(line.split()[1])
        finally:
            timer.cancel()
        raise RuntimeError(f"the process ended with {self.process.wait()} and never said {word}")

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it is gone. Idempotent."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
