"""Text that goes into the store's text columns: checked once, at the boundary."""

from __future__ import annotations

from .errors import RomulusError


class InvalidText(RomulusError, ValueError):
    """A name, ID or reason cannot be stored as text; the message names the field and the remedy."""


def check_text(value: str, field: str, max_chars: int) -> str:
    """Return *value* if a store can keep it: no NUL, no lone surrogate, at most *max_chars* characters.

    Raises:
        InvalidText: it cannot.
    """
    if not isinstance(value, str):
        raise InvalidText(f"{field} must be a str, not {type(value).__name__}")
    if len(value) > max_chars:
        raise InvalidText(f"{field} has {len(value):,} characters, at most {max_chars:,} are allowed: {value[:40]!r}…")
    if "\x00" in value:
        raise InvalidText(f"{field} has a NUL character at {value.index(chr(0))}: {_shown(value)}; remove it")
    at = surrogate_at(value)
    if at is not None:
        raise InvalidText(f"{field} has a lone surrogate at {at}: {_shown(value)}; decode the text it came from properly")
    return value


def surrogate_at(value: str) -> int | None:
    """Return the position of the first lone surrogate in *value*, None if there is none."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def escaped(value: str) -> str:
    """Return *value* with NULs and lone surrogates spelt out as backslash escapes."""
    return value.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _shown(value: str) -> str:
    return ascii(value if len(value) <= 40 else value[:40] + "…")
