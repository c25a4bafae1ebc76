"""What an exception says of itself, as JSON data; each question it answers badly is answered for it.

Everything is bounded: length of texts, depth of causes and groups, number of exceptions and notes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import ActivationTimeout, Dropped
from .plain import Refused, pack
from .text import escaped

TEXT_MAX = 16_384  # characters of a message, a note, or packed arguments
TRACEBACK_MAX = 32_768  # characters; the end is kept, where the cause stands
NOTES_MAX = 50
ATTRIBUTES_MAX = 50
DEPTH_MAX = 20  # causes and groups inside each other
EXCEPTIONS_MAX = 100  # in one failure, causes and members of groups together

T = TypeVar("T")


def facts(exc: BaseException, text_max: int) -> dict[str, Any]:
    """Return what is stored of *exc*. Never raises because of what the exception does."""
    found = _Walk(text_max).one(exc, 0)
    text = quietly(lambda: "".join(traceback.format_exception(exc)), "")
    found["traceback"] = escaped(text[-TRACEBACK_MAX:])
    return found


def quietly(ask: Callable[[], T], otherwise: T) -> T:
    """Return what *ask* returns, *otherwise* if it raises; only the engine's own interruptions get through."""
    try:
        return ask()
    except (ActivationTimeout, Dropped, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001
        return otherwise


def cut(text: str, chars_max: int) -> str:
    """Return *text* without NULs and lone surrogates, and with a note of how much was cut past *chars_max*."""
    kept = escaped(text[:chars_max])
    return kept if len(text) <= chars_max else f"{kept}… ({len(text) - chars_max:,} more characters)"


class _Walk:
    """One walk over an exception, its causes and members."""

    def __init__(self, text_max: int) -> None:
        self.text_max = text_max
        self.seen: set[int] = set()

    def one(self, exc: BaseException, depth: int) -> dict[str, Any]:
        self.seen.add(id(exc))
        found: dict[str, Any] = {"type": _type_of(exc), "message": self.message(exc)}
        self.arguments(exc, found)
        self.notes(exc, found)
        self.inner(exc, found, depth)
        return found

    def message(self, exc: BaseException) -> str:
        text = quietly(lambda: exc.message if isinstance(exc, BaseExceptionGroup) else str(exc), None)
        return cut(text, self.text_max) if isinstance(text, str) else "<its message cannot be read>"

    def arguments(self, exc: BaseException, found: dict[str, Any]) -> None:
        if isinstance(exc, BaseExceptionGroup):
            return
        args = quietly(lambda: self.packed(_arguments_of(exc)), None)
        if args is not None:
            found["args"] = args
        state = self.state(exc)
        if state:
            found["state"] = state

    def state(self, exc: BaseException) -> dict[str, Any]:
        """Return its attributes, as far as they are plain."""
        attributes: list[tuple[str, Any]] = quietly(lambda: list(vars(exc).items()), [])
        packed = {escaped(name): self.packed(value) for name, value in attributes[:ATTRIBUTES_MAX] if not name.startswith("__")}
        return {name: value for name, value in packed.items() if value is not None}

    def packed(self, value: Any) -> Any:
        try:
            return [pack(value, self.text_max)]
        except Refused:
            return None

    def notes(self, exc: BaseException, found: dict[str, Any]) -> None:
        notes: list[Any] = quietly(lambda: list(getattr(exc, "__notes__", ())), [])
        texts = [cut(note, self.text_max) for note in notes[:NOTES_MAX] if isinstance(note, str)]
        if len(notes) > NOTES_MAX:
            texts.append(f"… ({len(notes) - NOTES_MAX:,} more notes)")
        if texts:
            found["notes"] = texts

    def inner(self, exc: BaseException, found: dict[str, Any], depth: int) -> None:
        cause = exc.__cause__
        if cause is not None and self.room(cause, depth):
            found["cause"] = self.one(cause, depth + 1)
        if isinstance(exc, BaseExceptionGroup):
            members = [self.one(member, depth + 1) for member in exc.exceptions if self.room(member, depth)]
            found["members"] = members
            found["cut"] = len(exc.exceptions) - len(members)

    def room(self, exc: BaseException, depth: int) -> bool:
        return depth < DEPTH_MAX and len(self.seen) < EXCEPTIONS_MAX and id(exc) not in self.seen


def _type_of(exc: BaseException) -> str:
    cls = type(exc)
    return escaped(f"{cls.__module__}:{cls.__qualname__}")


def _arguments_of(exc: BaseException) -> tuple[Any, ...]:
    """Return what makes it again: `OSError` knows more than its `args`."""
    reduced: Any = exc.__reduce__() if isinstance(exc, OSError) else None
    if isinstance(reduced, tuple) and len(reduced) >= 2 and reduced[0] is type(exc):
        return tuple(reduced[1])
    return tuple(exc.args)
