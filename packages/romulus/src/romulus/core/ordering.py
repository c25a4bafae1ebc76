"""Sets are stored sorted, so that equal sets give equal bytes whatever the hash seed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pydantic_core import to_json


def sorted_set(node: dict[str, Any]) -> dict[str, Any]:
    """Return the set schema *node* with its encoding in sorted order; one of its own is kept."""
    if "serialization" not in node:
        node["serialization"] = {"type": "function-wrap", "function": _sorted, "schema": dict(node), "when_used": "json"}
    return node


def _sorted(value: Any, encode: Callable[[Any], Collection[Any]]) -> list[Any]:
    return sorted(encode(value), key=_encoded)


def _encoded(item: Any) -> bytes:
    return to_json(item, inf_nan_mode="constants")
