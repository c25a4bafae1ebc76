"""The mark that hides a field from console, CLI and logs; the stored value is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

REDACTED: Final = "[redacted]"
HIDES: Final = b" "  # behind stored JSON, where it means nothing: a part of this value is marked, for who has no code that says which
_MARK: Final = "romulus_redacted"


class Redacted:
    """Mark for `Annotated[T, Redacted]`: the value is stored and restored, and shown as "[redacted]"."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return {"type": "chain", "steps": [handler(source)], "metadata": {_MARK: True}}


def inside_mark(node: dict[str, Any]) -> Any:
    """Return the schema that the mark was put on, None if *node* is not a mark."""
    metadata: dict[str, Any] = node.get("metadata") or {}
    return node["steps"][0] if node["type"] == "chain" and metadata.get(_MARK) else None


def hidden_schema() -> dict[str, Any]:
    """Return a schema whose values show as "[redacted]"."""
    return {"type": "any", "serialization": {"type": "function-plain", "function": _hide}}


def _hide(_: Any) -> str:
    return REDACTED
