"""Exceptions as bytes and back, whatever they are: this may never break a worker or a listing.

What an exception says of itself is `exception_facts`' business, making one again that of `exception_rebuild`.
"""

from __future__ import annotations

import json
from typing import Any, cast

from .errors import StepFailed
from .exception_facts import TEXT_MAX, cut, facts
from .exception_rebuild import rebuild

_LINE_MAX = 300  # characters of a listing's line
_UNREADABLE = "the stored failure cannot be read"
_TYPE_MAX = 60  # characters, in a failure cut to fit
_BYTES_PER_CHAR = 6  # at most, in JSON
_BYTES_AROUND = 120  # of punctuation, names and the note of what was cut


def dump_failure(exc: BaseException, *, text_max: int = TEXT_MAX) -> bytes:
    """Return *exc* encoded: type, message, arguments where they are plain, notes, cause, members and traceback text.

    Each text is cut to *text_max* characters, all together to 5 times that. Never raises, whatever the exception does.
    """
    return _encoded(facts(exc, text_max))


def cut_failure(data: bytes, bytes_max: int) -> bytes:
    """Return an encoded failure in at most *bytes_max* bytes (from 600 on): where it has more, type and message only. Never raises."""
    if len(data) <= bytes_max:
        return data
    try:
        found = _decoded(data)
    except Exception:  # noqa: BLE001  # whatever is wrong with it, the caller goes on
        found = {"type": "", "message": _UNREADABLE}
    type_name, message = str(found["type"]), str(found.get("message", ""))
    room = max(bytes_max - _BYTES_PER_CHAR * min(len(type_name), _TYPE_MAX) - _BYTES_AROUND, 0)
    return _encoded({"type": type_name[:_TYPE_MAX], "message": cut(message, room // _BYTES_PER_CHAR)})


def load_failure(data: bytes) -> BaseException:
    """Return the exception encoded as *data*: its own class where it can be made again, else `StepFailed`. Never raises.

    Its `romulus_traceback` is the traceback's text where it was raised.
    """
    try:
        return rebuild(_decoded(data))
    except Exception:  # noqa: BLE001  # whatever is wrong with it, the caller goes on
        return StepFailed(_UNREADABLE)


def describe_failure(data: bytes) -> str:
    """Return one line about the failure for listings. Never raises."""
    try:
        return _line(_decoded(data))
    except Exception:  # noqa: BLE001  # a listing goes on
        return _UNREADABLE


def failure_traceback(data: bytes) -> str:
    """Return the text of the traceback kept with the failure, "" where there is none. Never raises."""
    try:
        return str(_decoded(data).get("traceback", ""))
    except Exception:  # noqa: BLE001  # a listing goes on
        return ""


def _encoded(found: dict[str, Any]) -> bytes:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(data: bytes) -> dict[str, Any]:
    found: Any = json.loads(data)
    if not isinstance(found, dict) or "type" not in found:
        raise TypeError(_UNREADABLE)
    return cast("dict[str, Any]", found)


def _line(found: dict[str, Any]) -> str:
    name = str(found["type"]).rpartition(":")[2]
    if name == StepFailed.__name__:  # stands in for another class
        name = str(found.get("state", {}).get("type_name", [""])[0]) or name
    members = len(found.get("members", ())) + found.get("cut", 0)
    text = " ".join(str(found.get("message", "")).split()) + (f" ({members:,} exceptions)" if members else "")
    return _visible(f"{name}: {text}" if text else name)


def _visible(line: str) -> str:
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line[: _LINE_MAX + 1])
    return shown if len(shown) <= _LINE_MAX else shown[: _LINE_MAX - 1] + "…"
