"""What step bodies really did: lines in a file outside the store, and gates that hold a body until the test opens them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import romulus

DIRECTORY = "CASES_DIRECTORY"  # variable: where the effects file and the gates are
STEP_S = 0.005  # between two looks at a gate


def directory() -> Path:
    """Return the directory of this test."""
    return Path(os.environ[DIRECTORY])


def note(what: str, **more: Any) -> None:
    """Append one line about the running attempt; it survives the process."""
    attempt = romulus.current_attempt()
    line = {
        "what": what, "run": attempt.run_id, "step": attempt.step, "seq": attempt.seq, "attempt": attempt.number,
        "fence": attempt.fence, "pid": os.getpid(), **more,
    }  # fmt: skip
    file = os.open(directory() / "effects", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


async def gate(name: str) -> None:
    """Hold an `async def` body until the test opens the gate."""
    while not (directory() / f"gate-{name}").exists():
        await asyncio.sleep(STEP_S)


def gate_blocking(name: str) -> None:
    """Hold the thread until the test opens the gate, whatever else waits for it."""
    while not (directory() / f"gate-{name}").exists():
        time.sleep(STEP_S)


def gate_computing(name: str) -> None:
    """Hold the thread and the interpreter, computing all the while."""
    while not (directory() / f"gate-{name}").exists():
        sum(range(20_000))


def door(name: str, **more: Any) -> None:
    """Note that a `def` body has come to a door, and hold it for as long as the test has shut that."""
    note(name, **more)
    while (directory() / f"shut-{name}").exists():
        time.sleep(STEP_S)


def die() -> None:
    """End this process as kill -9 does, from the inside: at exactly this line."""
    os.kill(os.getpid(), signal.SIGKILL)
