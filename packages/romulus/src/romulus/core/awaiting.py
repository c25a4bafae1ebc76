"""Says in words what each task of a run awaits: for a person who finds it deadlocked."""

from __future__ import annotations

from types import FrameType
from typing import Any

_DEEP_MAX = 200
_SHOWN_MAX = 50  # tasks named
_FUTURES = frozenset({"Future", "FutureIter", "RunFuture", "RunTask", "_GatheringFuture"})


def awaiting(tasks: list[Any], frames: list[FrameType]) -> list[str]:
    """Return a line for each unfinished task, in creation order; *frames* are those of suspended sync code."""
    waiting = [task for task in tasks if not task.done()]
    sync = [_place(frame) for frame in map(_outside_engine, frames) if frame is not None]
    lines = [f"{task.get_name()} {_described(task.get_coro(), sync)}" for task in waiting[:_SHOWN_MAX]]
    if len(waiting) > _SHOWN_MAX:
        lines.append(f"and {len(waiting) - _SHOWN_MAX} tasks more")
    return lines


def _described(coroutine: Any, sync: list[str]) -> str:
    """Say what *coroutine* awaits; one that drives sync code takes the next of the *sync* places."""
    place, awaited = _innermost(coroutine)
    if place:
        return f"awaits {_what(awaited)} in {place}"
    return f"waits in {sync.pop(0)}" if sync else f"awaits {_what(awaited)}"


def _innermost(coroutine: Any) -> tuple[str, Any]:
    """Return the innermost place outside asyncio and this package that *coroutine* stands at, and what it awaits there."""
    place, awaited, at = "", coroutine, coroutine
    for _ in range(_DEEP_MAX):
        frame = _of(at, "frame")
        if frame is None:
            break
        after = _of(at, "await") or _of(at, "yieldfrom")
        if _is_user(frame):
            place, awaited = _place(frame), after
        at = after
    return place, awaited


def _of(suspended: Any, what: str) -> Any:
    """Return an attribute of a suspended coroutine, generator or asynchronous generator."""
    return next((found for kind in ("cr", "gi", "ag") if (found := getattr(suspended, f"{kind}_{what}", None)) is not None), None)


def _what(awaited: Any) -> str:
    name = getattr(awaited, "__qualname__", "") or type(awaited).__name__
    if name == "Instance.outcome_of":
        return "an outcome"
    return "a future" if name in _FUTURES else name


def _is_user(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return not (module == "asyncio" or module.startswith(("asyncio.", "romulus.core.", "romulus.authoring.")))


def _outside_engine(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not _is_user(frame):
        frame = frame.f_back
    return frame


def _place(frame: FrameType) -> str:
    file = frame.f_code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{frame.f_code.co_qualname} ({file}:{frame.f_lineno})"
