"""A small, safe set of values as JSON data and back, exact in type: what exceptions may keep of their arguments."""

from __future__ import annotations

import base64
from typing import Any

from .classes import type_of
from .text import surrogate_at

DEPTH_MAX = 20


class Refused(Exception):
    """The value is not of the set, or is too large."""


def pack(value: Any, chars_max: int) -> tuple[Any, int]:
    """Return *value* as JSON data and its size: characters and items together, at most *chars_max*.

    Raises:
        Refused: it is not made of None, bool, int, float, str, bytes, tuple, list and dict with str keys.
    """
    packing = _Packing(chars_max)
    return packing.pack(value, 0), chars_max - packing.left


def unpack(data: Any) -> Any:
    """Return the value that `pack` was given."""
    match data:
        case list():
            return _unpacked(data)
        case {"bytes": encoded}:
            return base64.b64decode(encoded)
        case {"tuple": items}:
            return tuple(_unpacked(items))
        case {"dict": items}:
            return {key: unpack(item) for key, item in items}
        case _:
            return data


def _unpacked(items: Any) -> list[Any]:
    return [unpack(item) for item in items]


class _Packing:
    def __init__(self, left: int) -> None:
        self.left = left

    def pack(self, value: Any, depth: int) -> Any:
        kind = type_of(value)
        self.spend(len(value) if kind in (str, bytes, tuple, list, dict) else 1)
        if depth > DEPTH_MAX:
            raise Refused
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            return self.integer(value)
        if kind is str:
            return self.text(value)
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        return self.container(value, kind, depth + 1)

    def container(self, value: Any, kind: type, depth: int) -> Any:
        if kind is list:
            return [self.pack(item, depth) for item in value]
        if kind is tuple:
            return {"tuple": [self.pack(item, depth) for item in value]}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": [[self.text(key), self.pack(item, depth)] for key, item in value.items()]}
        raise Refused

    def integer(self, value: int) -> int:
        if value.bit_length() > 4_096:  # far below the digits Python reads back
            raise Refused
        return value

    def text(self, value: str) -> str:
        if "\x00" in value or surrogate_at(value) is not None:
            raise Refused
        return value

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise Refused
