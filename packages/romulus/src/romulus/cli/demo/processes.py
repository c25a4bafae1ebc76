"""The demo's worker processes: started, killed without warning, paused, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

LEASE_S = 2
STOP_S = 20


class WorkerProcess:
    """A `romulus worker` process of the demo's App."""

    def __init__(self, name: str, directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._log: IO[bytes] = (directory / f"{name.replace(' ', '-')}.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "romulus.cli", "worker", "romulus.cli.demo.shop:app"],
            env={**os.environ, **environment, "ROMULUS_LEASE": str(LEASE_S)}, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it at once: SIGKILL, which no process can answer."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Freeze it: SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on: SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to stop gracefully and return its exit code."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self.exit_code is None:
            self.kill()
        self._log.close()
