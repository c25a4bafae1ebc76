"""Who this process is, and whether another one still runs: boot, PID namespace, PID and its start time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

from romulus.core.ports import ProcessIdentity


def this_process() -> ProcessIdentity:
    """Return this process's identity; computed anew, so that a spawned or forked child gets its own."""
    pid = os.getpid()
    return ProcessIdentity(platform.node(), _boot(), pid, _started(pid) or "", _namespace())


def is_alive(identity: ProcessIdentity) -> bool | None:
    """Return whether that process still runs; None where it cannot be told from here."""
    if identity.host != platform.node() or identity.boot != _boot() or identity.pid_namespace != _namespace():
        return None
    if not _exists(identity.pid):
        return False
    started = _started(identity.pid)
    return started == identity.pid_start if started and identity.pid_start else True


@cache
def _boot() -> str:
    """Return a text that changes at each boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _boot_time()


def _boot_time() -> str:
    """Return the boot time as systems without /proc tell it; "" where none does."""
    if sys.platform == "darwin":
        answer = subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=False)
        return answer.stdout.split("}")[0]
    return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    """Return whether the PID is taken by a process that is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) not in {"Z", "X"}


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else ""


def _started(pid: int) -> str | None:
    """Return the process's start in clock ticks since boot, None where /proc does not tell."""
    fields = _stat(pid)
    return fields[19] if fields else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the command's closing bracket."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
