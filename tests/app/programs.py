"""Programs that the App's tests run as processes of their own, and how they are watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE_S = 40.0

ORDERS = """
import asyncio, pathlib, sys
import romulus

@romulus.step
async def charge(order: str) -> str:
    with pathlib.Path("charges").open("a") as file:
        file.write(order + "\\n")
    return f"receipt for {order}"

@romulus.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order)
    await asyncio.sleep(3)
    return receipt

app = romulus.App("sqlite:///orders.db", workflows=[checkout])

if __name__ == "__main__":
    print(app.run(checkout.options(id="checkout-42"), "42"))
"""

WORKERS = """
import asyncio, logging
import romulus

@romulus.workflow
async def nap(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds

app = romulus.App("sqlite:///work.db", workflows=[nap])

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    app.run_worker(processes={processes})
"""

DEAF = """
import asyncio, pathlib
import romulus

@romulus.step
async def hear() -> None:
    pathlib.Path("begun").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except {swallowed}:
            pass

@romulus.workflow
async def listen() -> None:
    await hear()

app = romulus.App("sqlite:///work.db", workflows=[listen])

if __name__ == "__main__":
    app.run_worker()
"""


def written(directory: Path, name: str, program: str) -> Path:
    """Write *program* to a file and return its path."""
    path = directory / name
    path.write_text(program, encoding="utf-8")
    return path


@contextmanager
def running(program: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program in its directory; it and all it started are killed at the end if they still run."""
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=program.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(condition: Callable[[], bool]) -> None:
    """Wait for *condition*."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
