"""Exceptions as bytes and back, whatever they are: this may never break a worker or a listing.

`encoding` of what an exception says of itself is in `exception_facts`, making one again in `exception_rebuild`.
"""

from __future__ import annotations

import json

from .errors import StepFailed
from .exception_facts import TEXT_MAX, facts
from .exception_rebuild import rebuild

_LINE_MAX = 300  # characters of a listing's line


def dump_failure(exc: BaseException, *, text_max: int = TEXT_MAX) -> bytes:
    """Return *exc* encoded: type, message, arguments where they are plain, notes, cause, members and traceback text.

    Texts are cut to *text_max* characters. Never raises, whatever the exception does.
    """
    return json.dumps(facts(exc, text_max), separators=(",", ":")).encode()


def load_failure(data: bytes) -> BaseException:
    """Return the exception encoded as *data*: its own class where it can be made again, else `StepFailed`. Never raises.

    Its `romulus_traceback` is the traceback's text where it was raised.
    """
    try:
        found = json.loads(data)
        return rebuild(found if isinstance(found, dict) else {})
    except Exception:  # noqa: BLE001  # whatever is wrong with it, a listing goes on
        return StepFailed("the stored failure cannot be read", "")


def describe_failure(data: bytes) -> str:
    """Return one line about the failure for listings. Never raises."""
    try:
        found = json.loads(data)
        return _line(str(found.get("type", "")), str(found.get("message", "")))
    except Exception:  # noqa: BLE001  # whatever is wrong with it, a listing goes on
        return "the stored failure cannot be read"


def _line(type_name: str, message: str) -> str:
    name = type_name.rpartition(":")[2] or "error"
    text = " ".join(message.split())
    return _cut_line(f"{name}: {text}" if text else name)


def _cut_line(line: str) -> str:
    visible = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line[: _LINE_MAX + 1])
    return visible if len(visible) <= _LINE_MAX else visible[: _LINE_MAX - 1] + "…"
