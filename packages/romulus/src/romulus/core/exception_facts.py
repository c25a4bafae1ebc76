"""What an exception says of itself, as JSON data; each question it answers badly is answered for it.

Everything is bounded: texts one by one and together, depth of causes and groups, number of exceptions, notes and attributes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar, cast

from .errors import ActivationTimeout, Dropped
from .modules import portable
from .plain import Refused, pack
from .text import escaped

TEXT_MAX = 16_384  # characters of a message or note, and of packed arguments; all together 4 times that
TRACEBACK_MAX = 16_384  # characters; the end is kept, where the exception stands
NOTES_MAX = 50
ATTRIBUTES_MAX = 50
DEPTH_MAX = 20  # causes and groups inside each other
EXCEPTIONS_MAX = 100  # in one failure, causes and members of groups together
TRACEBACK = "romulus_traceback"  # attribute of a rebuilt exception

T = TypeVar("T")
_CAUSE: Any = BaseException.__dict__["__cause__"]  # a class may hide them behind attributes of its own
_ARGS: Any = BaseException.__dict__["args"]


def facts(exc: BaseException, text_max: int) -> dict[str, Any]:
    """Return what is stored of *exc*. Never raises because of what the exception does."""
    found = quietly(lambda: _Walk(text_max).one(exc, ()), None) or {"type": type_of(exc), "message": cut(message_of(exc), text_max)}
    text = quietly(lambda: _raised_at(exc), "")
    found["traceback"] = escaped(text[-min(TRACEBACK_MAX, text_max) :])
    return found


def type_of(exc: BaseException) -> str:
    """Return "module:qualified name" of the class of *exc*, as other processes find it."""
    cls = type(exc)
    return escaped(quietly(lambda: f"{portable(cls.__module__)}:{cls.__qualname__}", "builtins:BaseException")[:500])


def message_of(exc: BaseException) -> str:
    """Return what *exc* says, or that it cannot be read."""
    text = quietly(lambda: exc.message if is_group(exc) else str(exc), None)
    return text if isinstance(text, str) else "<its message cannot be read>"


def is_group(exc: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    """Return whether *exc* is a group, whatever it says of its class."""
    return issubclass(type(exc), BaseExceptionGroup)


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
        self.chars_left = 4 * text_max
        self.exceptions_left = EXCEPTIONS_MAX

    def one(self, exc: BaseException, above: tuple[int, ...]) -> dict[str, Any]:
        self.exceptions_left -= 1
        found: dict[str, Any] = {"type": type_of(exc), "message": self.text(message_of(exc))}
        self.arguments(exc, found)
        self.state(exc, found)
        self.notes(exc, found)
        self.inner(exc, found, (*above, id(exc)))
        return found

    def text(self, text: str) -> str:
        kept = cut(text, min(self.text_max, self.chars_left))
        self.chars_left = max(self.chars_left - len(kept), 0)
        return kept

    def arguments(self, exc: BaseException, found: dict[str, Any]) -> None:
        args = None if is_group(exc) else quietly(lambda: self.packed(_arguments_of(exc)), None)
        if args is not None:
            found["args"] = args

    def state(self, exc: BaseException, found: dict[str, Any]) -> None:
        """Keep its attributes, as far as they are plain."""
        attributes: list[tuple[str, Any]] = quietly(lambda: list(vars(exc).items()), [])
        own = [(name, value) for name, value in attributes[:ATTRIBUTES_MAX] if not name.startswith("__") and name != TRACEBACK]
        packed = {escaped(name): self.packed(value) for name, value in own}
        kept = {name: value for name, value in packed.items() if value is not None}
        if kept:
            found["state"] = kept

    def packed(self, value: Any) -> Any:
        """Return *value* packed, in a list to tell a packed None from none."""
        try:
            data, size = pack(value, min(self.text_max, self.chars_left))
        except Refused:
            return None
        self.chars_left -= size
        return [data]

    def notes(self, exc: BaseException, found: dict[str, Any]) -> None:
        notes: list[Any] = quietly(lambda: list(getattr(exc, "__notes__", ())), [])
        texts = [self.text(note) for note in notes[:NOTES_MAX] if isinstance(note, str)]
        if len(notes) > NOTES_MAX:
            texts.append(f"… ({len(notes) - NOTES_MAX:,} more notes)")
        if texts:
            found["notes"] = texts

    def inner(self, exc: BaseException, found: dict[str, Any], above: tuple[int, ...]) -> None:
        cause = _CAUSE.__get__(exc)
        if cause is not None and self.room(cause, above):
            found["cause"] = self.one(cause, above)
        if is_group(exc):
            members: tuple[BaseException, ...] = exc.exceptions
            found["members"] = [self.one(member, above) for member in members if self.room(member, above)]
            found["cut"] = len(members) - len(found["members"])

    def room(self, exc: BaseException, above: tuple[int, ...]) -> bool:
        return self.exceptions_left > 0 and len(above) < DEPTH_MAX and id(exc) not in above


def _raised_at(exc: BaseException) -> str:
    """Return its traceback; one out of the record was raised in its step before, of which the workflow's traceback knows nothing."""
    before = quietly(lambda: vars(exc).get(TRACEBACK), None)
    again = "".join(traceback.format_exception(exc))
    if not isinstance(before, str) or not before:
        return again
    return before if exc.__traceback__ is None else f"{before}\nand raised again:\n\n{again}"


def _arguments_of(exc: BaseException) -> tuple[Any, ...]:
    """Return what makes it again: `OSError` knows more than its `args`."""
    if not isinstance(exc, OSError):
        return tuple(_ARGS.__get__(exc))
    cls, args, *_ = cast("tuple[Any, tuple[Any, ...]]", exc.__reduce__())
    return args if cls is type(exc) else exc.args
