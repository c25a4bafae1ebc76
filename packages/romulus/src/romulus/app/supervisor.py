"""Several worker processes: spawned, never forked, restarted with back-off, stopped together."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import cast

from romulus.core.errors import ConfigurationError

from .logs import level_of_lines, log_to_stderr
from .serving import STOP_SIGNALS, Workable, serve
from .settings import worker_settings

log = logging.getLogger("romulus.worker")
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.5, 30.0
STEADY_S = 30.0  # a process that ran this long begins again without back-off
STOP_MARGIN_S = 5.0  # after the grace period, before what is left is killed
spawned = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class _Slot:
    process: BaseProcess | None = None
    started: float = 0.0
    due: float = 0.0  # monotonic: start not before
    backoff: float = BACKOFF_MIN_S


def supervise(app: Workable, concurrency: int, pools: tuple[str, ...], processes: int) -> None:
    """Keep *processes* workers of *app* running until SIGTERM or SIGINT, then stop them gracefully.

    Raises:
        ConfigurationError: *app* is no attribute of a module, so other processes cannot import it.
    """
    module, attribute = locate(app)
    slots = [_Slot() for _ in range(processes)]
    with _stop_signals() as asked:
        while not _drained(asked):
            _start_due(slots, (module, attribute, concurrency, pools, level_of_lines()))
            _await_news(slots, asked)
        _stop_all(slots, worker_settings().grace / 1_000_000 + STOP_MARGIN_S)


def locate(app: object) -> tuple[str, str]:
    """Return the module and attribute under which other processes find *app*."""
    for name, module in sorted(sys.modules.copy().items(), key=lambda item: item[0] == "__main__"):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return name, attribute
    raise ConfigurationError(
        "several processes each import the App, so it must be a variable of a module: put `app = romulus.App(…)` at its top level"
    )


def work(module: str, attribute: str, concurrency: int, pools: tuple[str, ...], level: int | None) -> None:
    """Be one of several workers: import the App and serve, until SIGTERM or until the supervisor is gone.

    *level*: what the supervisor logs at; a spawned process knows nothing of its logging.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor passes it on
    threading.Thread(target=_end_with_parent, name="romulus-parent", daemon=True).start()
    app = cast("Workable", getattr(importlib.import_module(module), attribute))
    if level is not None:
        log_to_stderr(level)
    serve(app, concurrency, pools)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _start_due(slots: list[_Slot], target: tuple[str, str, int, tuple[str, ...], int | None]) -> None:
    now = time.monotonic()
    for slot in slots:
        if slot.process is not None and not slot.process.is_alive():
            _note_end(slot, slot.process, now)
        if slot.process is None and slot.due <= now:
            slot.process = spawned.Process(target=work, args=target, name="romulus-worker")
            slot.process.start()
            slot.started = now


def _note_end(slot: _Slot, process: BaseProcess, now: float) -> None:
    slot.backoff = BACKOFF_MIN_S if now - slot.started >= STEADY_S else min(slot.backoff * 2, BACKOFF_MAX_S)
    slot.process, slot.due = None, now + slot.backoff
    log.warning("worker process %s ended with %s; another starts in %.1f s", process.pid, process.exitcode, slot.backoff)


def _await_news(slots: list[_Slot], asked: socket.socket) -> None:
    """Wait until a process ends, a start is due, or a signal comes."""
    ends = [slot.process.sentinel for slot in slots if slot.process is not None]
    dues = [slot.due for slot in slots if slot.process is None]
    wait([*ends, asked], timeout=max(min(dues) - time.monotonic(), 0) if dues else None)


def _stop_all(slots: list[_Slot], patience_s: float) -> None:
    live = [slot.process for slot in slots if slot.process is not None]
    for process in live:
        process.terminate()  # SIGTERM: graceful
    until = time.monotonic() + patience_s
    for process in live:
        process.join(max(until - time.monotonic(), 0))
    for process in live:
        if process.is_alive():
            log.warning("worker process %s did not stop in time and is killed; its runs go on elsewhere", process.pid)
            process.kill()
            process.join()


@contextmanager
def _stop_signals() -> Generator[socket.socket]:
    """Yield a socket that has something to read once a stop signal came."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)

    def handle(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # the next one ends the supervisor; its workers then end gracefully by themselves
        writer.send(b"x")

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was set outside Python
        reader.close()
        writer.close()


def _drained(asked: socket.socket) -> bool:
    try:
        return bool(asked.recv(16))
    except BlockingIOError:
        return False
