"""Says in words what each task of a run awaits: for a person who finds it deadlocked."""

from __future__ import annotations

from types import FrameType
from typing import Any

_DEEP_MAX = 200
_SHOWN_MAX = 50  # tasks named


def awaiting(tasks: list[Any], frames: list[FrameType]) -> list[str]:
    """Return a line for each unfinished task, in creation order; *frames* are those of suspended sync code."""
    waiting = [task for task in tasks if not task.done()]
    lines = [f"{task.get_name()} {_described(task)}" for task in waiting[:_SHOWN_MAX]]
    if len(waiting) > _SHOWN_MAX:
        lines.append(f"and {len(waiting) - _SHOWN_MAX} tasks more")
    lines.extend(f"sync code is suspended in {_place(frame)}" for frame in map(_outside_engine, frames) if frame is not None)
    return lines


def _described(task: Any) -> str:
    place, awaited = _innermost(task.get_coro())
    what = type(awaited).__name__ if awaited is not None else "another task"
    return f"awaits {_what(awaited)} in {place}" if place else f"awaits {what}"


def _innermost(coroutine: Any) -> tuple[str, Any]:
    """Return the innermost place outside asyncio and this package that *coroutine* stands at, and what it awaits there."""
    place, awaited, at = "", coroutine, coroutine
    for _ in range(_DEEP_MAX):
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None) or getattr(at, "ag_frame", None)
        if frame is None:
            break
        after = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None) or getattr(at, "ag_await", None)
        if _is_user(frame):
            place, awaited = _place(frame), after
        at = after
    return place, awaited


def _what(awaited: Any) -> str:
    name = getattr(awaited, "__qualname__", "") or type(awaited).__name__
    return "a future" if name in {"FutureIter", "RunFuture", "_GatheringFuture"} else name


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
