"""Keeps the second interpreter alive: starts it with another hash seed, restarts it with back-off, ends it at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from romulus.core.ports import Host
from romulus.worker.pause import pause

from .words import LENGTH_BYTES, Answer, Broken, Done, Target, Told, packed, unpacked

log = logging.getLogger("romulus.worker")
SECOND = 1_000_000
BACKOFF_MIN, BACKOFF_MAX = SECOND // 2, 30 * SECOND  # µs
STEADY = 30 * SECOND  # µs: one that lived this long begins again without back-off
QUIET_MAX_S = 60.0  # with something told and not answered: it hangs
UNREAD_MAX_BYTES = 64 * 1024 * 1024


class SecondInterpreter:
    """One process at a time; what it says is handed to *hear*, on the loop."""

    def __init__(self, host: Host, target: Target, hear: Callable[[Answer], None]) -> None:
        self._host, self._target, self._hear = host, target, hear
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()  # a first process is there, or could not be
        self._unread: int = 0  # bytes told and not worked through
        self._idle = asyncio.Event()
        self._idle.set()
        self.life = 0  # number of the process there is or was last
        self.replayed = 0  # entries delivered by the process there is

    async def start(self) -> None:
        """Start the first process; it takes what it is told from here on, at its own pace."""
        self._keeper = self._host.spawn(self._keep(), name="romulus-shadow")
        await self._tried.wait()

    async def stop(self) -> None:
        """End the process at once and wait for its end."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper

    @property
    def pid(self) -> int | None:
        """Return the process's ID while there is one."""
        return self._process.pid if self._process is not None else None

    def tell(self, told: Told) -> bool:
        """Send a message; return False where there is no process, or it has too much to do already."""
        if self._process is None or self._unread > UNREAD_MAX_BYTES:
            return False
        return self._write(packed(told))

    async def settled(self, limit: int) -> None:
        """Wait until everything told is worked through, at most *limit* µs."""
        over = self._host.call_later(limit, self._idle.set)
        await self._idle.wait()
        over.cancel()

    # ---- one process after the other -----------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            await self._keep_one()
        except Exception:
            log.exception("development mode has ended: runs are not compared any more")

    async def _keep_one(self) -> None:
        backoff = BACKOFF_MIN
        while True:
            began = self._host.monotonic()
            ending = await self._live()
            if ending is None:
                return
            if self._host.monotonic() - began >= STEADY:
                backoff = BACKOFF_MIN
            log.warning("the second interpreter %s; another starts in %.1f s, for the runs taken up from then on", ending, backoff / SECOND)
            await pause(self._host, backoff)
            backoff = min(backoff * 2, BACKOFF_MAX)

    async def _live(self) -> str | None:
        """Start a process and hear it to its end; return in words how that came, None where another would fare no better."""
        try:
            process = await self._spawn()
        except OSError as error:
            self._tried.set()
            return f"cannot be started ({error})"
        self._process = process
        self.life += 1
        try:
            self._write(packed(self._target), answered=False)
            self._tried.set()
            heard_all = await self._listen(process)
        finally:
            self._process = None
            await _end(process)
            self._unread = 0
            self._idle.set()
        return f"ended with {process.returncode}" if heard_all else None

    async def _spawn(self) -> asyncio.subprocess.Process:
        code = f"import sys; sys.path[:] = {sys.path!r}; from romulus.worker.shadow.interpreter import main; main()"
        environment, pipe = _environment(self._host, os.environ), asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdin=pipe, stdout=pipe, env=environment, start_new_session=True  # Ctrl-C is for the worker
        )  # fmt: skip

    async def _listen(self, process: asyncio.subprocess.Process) -> bool:
        """Hand on what the process says until it ends; False once it has said that it cannot import the App."""
        assert process.stdout is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._read_head(process, process.stdout)
                body = await process.stdout.readexactly(int.from_bytes(head, "big"))
                answer: Answer = unpacked(body)
                if isinstance(answer, Done):
                    self._done(answer)
                else:
                    self._host.call_soon(self._hear, answer)  # holding a run may close its code, which no task may run
                if isinstance(answer, Broken):
                    return False
        return True

    async def _read_head(self, process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> bytes:
        """Return the next frame's length; a process that leaves what it was told unanswered for too long is killed."""
        while True:
            told = self._unread > 0
            try:
                async with asyncio.timeout(QUIET_MAX_S):
                    return await stdout.readexactly(LENGTH_BYTES)
            except TimeoutError:
                if told:
                    _kill(process)

    def _write(self, frame: bytes, *, answered: bool = True) -> bool:
        assert self._process is not None
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            return False
        if answered:
            self._unread += len(frame)
            self._idle.clear()
        stdin.write(frame)
        return True

    def _done(self, done: Done) -> None:
        self._unread -= done.size + LENGTH_BYTES
        self.replayed = done.replayed
        if self._unread <= 0:
            self._idle.set()


def _environment(host: Host, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process whose strings hash otherwise than here."""
    seed = 1 + host.random_bits(31)
    other = seed + 1 if str(seed) == environment.get("PYTHONHASHSEED") else seed
    return {**environment, "PYTHONHASHSEED": str(other)}


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it lives, and wait until it and its pipes are gone."""
    _kill(process)
    assert process.stdin is not None
    assert process.stdout is not None
    if not process.stdin.is_closing():
        process.stdin.transport.abort()
    await process.stdout.read()
    await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process unless its end is known.

    Not by its own `kill`, which polls before: it may take the exit status of one that has just ended from asyncio's child watcher, which
    then reports 255 for any of them.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
