"""The guard at run time: what workflow code calls while its run advances and a replay cannot repeat is refused by name.

The scan finds what the code names; this finds the rest, such as a file opened three libraries down. It costs an activation nothing:
functions of `time`, `random`, `uuid`, `os` and `secrets` are replaced once while a worker is up, and ask which event loop is running only
when called; an audit hook does the same for files, sockets, processes and threads, which many roads lead to. What it cannot see is left to
the scan and to the shadow interpreter: methods of C classes (`datetime.now`), and C functions taken out of their module before a worker
started (`from time import time`).

Logging, tracebacks, warnings, time zones, imports and debuggers open files and read the clock for themselves: below their frames all of it
is allowed, and so is what the engine does and what runs in a garbage collection.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import sys
import threading
import time
import uuid
from asyncio import _get_running_loop
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from types import FrameType, ModuleType
from typing import Any, Final

from romulus.core.errors import NondeterminismRefused
from romulus.core.loop import WorkflowLoop

from .scan_refused import CLOCK, DRAW, FILES, INPUT, MACHINE, NETWORK, PROCESS, SLEEP, THREAD, UUID

_TRUSTED: Final = frozenset(
    "logging linecache traceback tokenize warnings zoneinfo importlib zipimport _frozen_importlib _frozen_importlib_external encodings "
    "inspect pdb bdb debugpy pydevd _pydevd_bundle coverage _pytest loguru structlog sentry_sdk opentelemetry".split()
)
_REPLACED: Final[tuple[tuple[ModuleType | type, str, str], ...]] = (
    (time, "time time_ns", CLOCK),
    (time, "sleep", SLEEP),
    (uuid, "uuid1 uuid4", UUID),
    (os, "urandom", DRAW),
    (threading.Thread, "start", THREAD),  # audited from Python 3.12 only
    (secrets, "token_bytes token_hex token_urlsafe choice randbelow randbits", DRAW),
    (random, " ".join(name for name in random.__all__ if getattr(getattr(random, name), "__self__", None) is not None), DRAW),
)
_AUDITED: Final = {
    **dict.fromkeys("os.listdir os.scandir os.mkdir os.rmdir os.remove os.rename os.link os.symlink os.truncate os.chmod".split(), FILES),
    **dict.fromkeys("open sqlite3.connect tempfile.mkstemp tempfile.mkdtemp".split(), FILES),
    **dict.fromkeys("socket.__new__ socket.connect socket.bind socket.sendto socket.getaddrinfo socket.gethostbyname".split(), NETWORK),
    **dict.fromkeys("subprocess.Popen os.system os.fork os.exec os.posix_spawn os.spawn os.kill".split(), PROCESS),
    **dict.fromkeys("_thread.start_new_thread _thread.start_joinable_thread".split(), THREAD),
    "socket.gethostname": MACHINE,
    "builtins.input": INPUT,
}
_NAMES: Final = {
    "socket.__new__": "socket.socket",
    "_thread.start_new_thread": "threading.Thread.start",
    "_thread.start_joinable_thread": "threading.Thread.start",
    "builtins.input": "input",
}
_CODEC: Final = "romulus.core.vault"  # calls the App's codec, whose nonces and clock are no workflow's business
_frames_max = 10_000  # looked at between a call and the loop


class _Guard:
    """Counts who wants the guard; the first installs it, the last takes it away."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.hooked = False  # an audit hook cannot be taken away: it is added once and looks at `users`
        self.originals: list[tuple[ModuleType | type, str, Any, Any]] = []

    def enter(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.originals = list(_replace())
            if not self.hooked:
                self.hooked = True
                sys.addaudithook(_hook(self))

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                for owner, name, original, replacement in self.originals:
                    if getattr(owner, name) is replacement:  # somebody else's, put over ours, stays
                        setattr(owner, name, original)


_guard = _Guard()


def install() -> Callable[[], None]:
    """Refuse from now on; the returned function, called once or more, takes this installation away."""
    _guard.enter()
    once = iter([_guard.leave])

    def remove() -> None:
        next(once, _nothing)()

    return remove


@contextmanager
def refusing() -> Generator[None, None, None]:
    """Refuse inside the `with` block."""
    remove = install()
    try:
        yield
    finally:
        remove()


def _nothing() -> None:
    return


def _replace() -> Iterator[tuple[ModuleType | type, str, Any, Any]]:
    """Replace each function; yield where, what was there, and what is now."""
    for owner, names, remedy in _REPLACED:
        where = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
        for name in names.split():
            original = getattr(owner, name)
            replacement = _replacement(original, f"{where}.{name}", remedy)
            setattr(owner, name, replacement)
            yield owner, name, original, replacement


def _replacement(original: Callable[..., Any], call: str, remedy: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def refused_in_workflows(*args: Any, **kwargs: Any) -> Any:
        loop = _get_running_loop()
        if type(loop) is WorkflowLoop and loop.live:
            _check(loop, call, remedy, sys._getframe(1))
        return original(*args, **kwargs)

    refused_in_workflows.__romulus_original__ = original  # type: ignore[attr-defined]  # the scan knows the function by it
    return refused_in_workflows


def _hook(guard: _Guard) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook. It keeps what it needs: modules lose their names while the interpreter ends."""

    def hook(
        event: str,
        args: tuple[Any, ...],
        audited: dict[str, str] = _AUDITED,
        running: Callable[[], object] = _get_running_loop,
        kind: type[WorkflowLoop] = WorkflowLoop,
    ) -> None:
        if event in audited and guard.users:
            loop = running()
            if type(loop) is kind and loop.live and not _is_zone(event, args):
                _check(loop, _NAMES.get(event, event), audited[event], sys._getframe(1))

    return hook


def _is_zone(event: str, args: tuple[Any, ...]) -> bool:
    """Return whether a time zone's data is opened: `ZoneInfo` is written in C and has no frame to be trusted by."""
    zones = sys.modules.get("zoneinfo")
    return event == "open" and zones is not None and isinstance(args[0], str) and args[0].startswith(tuple(zones.TZPATH))


def _check(loop: WorkflowLoop, call: str, remedy: str, caller: FrameType) -> None:
    """Refuse *call* unless the engine itself made it, or something trusted did on the way from workflow code.

    Raises:
        NondeterminismRefused: naming the call, the place in the user's code and the remedy.
    """
    frames, base = _frames(caller)
    if not frames or base == _CODEC or any(_module(frame).partition(".")[0] in _TRUSTED for frame in frames):
        return
    place = next((frame for frame in frames if _is_users(frame)), caller)
    where = f"{_module(place)}.{place.f_code.co_qualname}, {PurePath(place.f_code.co_filename).name}:{place.f_lineno}"
    error = NondeterminismRefused(f"{call} in workflow code ({where}): {remedy}")
    loop.refusal = loop.refusal or error  # kept: the code may swallow what is raised
    raise error


def _frames(caller: FrameType) -> tuple[list[FrameType], str]:
    """Return the frames from *caller* out to the engine's, and the module of the engine that called them."""
    found: list[FrameType] = []
    frame: FrameType | None = caller
    while frame is not None and len(found) < _frames_max:
        if _module(frame).startswith("romulus."):
            return found, _module(frame)
        found.append(frame)
        frame = frame.f_back
    return found, ""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_users(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] not in sys.stdlib_module_names
