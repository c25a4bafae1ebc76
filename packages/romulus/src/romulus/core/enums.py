"""Enums whose values are not plain JSON are stored by member name."""

from __future__ import annotations

from enum import Enum
from typing import Any

_JSON = (str, int, float, type(None))


def stored_by_name(node: dict[str, Any]) -> dict[str, Any]:
    """Return the enum schema *node*, by member name where a member's value would not come back from JSON."""
    cls: type[Enum] = node["cls"]
    if "serialization" in node or all(isinstance(member.value, _JSON) for member in cls):
        return node

    def named(name: Any) -> Enum:
        if isinstance(name, str) and name in cls.__members__:
            return cls[name]
        raise ValueError(f"should be the name of a member of {cls.__qualname__}")

    return {
        "type": "function-plain",
        "function": {"type": "no-info", "function": named},
        "serialization": {"type": "function-plain", "function": _name},
    }


def _name(member: Any) -> str:
    return str(member.name)
