"""From an annotation to the two functions that encode and decode its values.

Pydantic makes the core schema; this module changes a copy of it so that values survive the way there and back:
base64 bytes and NaN/infinity constants in dataclasses and TypedDicts (a pydantic model keeps its own settings),
sets in sorted order, enums of odd values by name, dataclass fields that are not `__init__` arguments, and secrets refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import Secret, SecretBytes, SecretStr, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator

from .enums import stored_by_name
from .fields import restore_fields
from .ordering import sorted_set
from .redaction import hidden_schema, inside_mark

SECRETS = (SecretStr, SecretBytes, Secret)
_STORED: dict[str, Any] = {"ser_json_bytes": "base64", "val_json_bytes": "base64", "ser_json_inf_nan": "constants"}
_SHOWN: dict[str, Any] = _STORED | {"ser_json_inf_nan": "strings"}
_NOT_SCHEMAS = frozenset({"default", "metadata", "config", "expected", "members", "custom_error_context", "discriminator", "cls", "ref"})


class SecretInAnnotation(Exception):
    """The annotation holds a secret type."""


@dataclass(slots=True, frozen=True)
class Plan:
    """How values of one annotation become bytes and come back."""

    to_json: Callable[..., bytes]
    from_json: Callable[..., Any]
    schema: Any  # core schema, changed for storing
    redacted: bool  # a part of it is marked


def plan(annotation: Any) -> Plan:
    """Return the plan for *annotation*.

    Raises:
        SecretInAnnotation: it holds `SecretStr` or another secret type.
        Exception: whatever pydantic says about an annotation it cannot take.
    """
    copy = _Copy()
    schema = copy.node(core_schema_of(annotation))
    serializer = SchemaSerializer(schema, _STORED, _use_prebuilt=False)  # type: ignore[call-arg,arg-type,unused-ignore]
    validator = SchemaValidator(schema, _STORED, _use_prebuilt=False)  # type: ignore[call-arg,arg-type,unused-ignore]
    return Plan(serializer.to_json, validator.validate_json, schema, copy.redacted)


def shown_serializer(annotation: Any) -> Callable[..., bytes]:
    """Return what encodes values of *annotation* for people: marked parts hidden, NaN and infinity as text."""
    schema = _Copy(hide=True).node(core_schema_of(annotation))
    return SchemaSerializer(schema, _SHOWN, _use_prebuilt=False).to_json  # type: ignore[call-arg,arg-type,unused-ignore]


def core_schema_of(annotation: Any) -> Any:
    """Return pydantic's core schema of *annotation*."""
    return TypeAdapter(annotation).core_schema


class _Copy:
    """One walk over a core schema that returns a changed copy."""

    def __init__(self, *, hide: bool = False) -> None:
        self.hide = hide
        self.redacted = False

    def node(self, node: dict[str, Any]) -> dict[str, Any]:
        marked = inside_mark(node)
        if marked is not None:
            self.redacted = True
            return hidden_schema() if self.hide else self.node(marked)
        _refuse_secrets(node)
        copy = {key: value if key in _NOT_SCHEMAS else self.part(value) for key, value in node.items()}
        change = _CHANGES.get(node["type"])
        return copy if change is None else change(copy, self)

    def part(self, part: Any) -> Any:
        if isinstance(part, dict):
            return self.node(part) if isinstance(part.get("type"), str) else {key: self.part(value) for key, value in part.items()}
        if isinstance(part, list):
            return [self.part(item) for item in part]
        if isinstance(part, tuple):  # a union's (schema, label)
            return tuple(self.part(item) for item in part)
        return part


def _refuse_secrets(node: dict[str, Any]) -> None:
    cls = node.get("cls")
    function = node.get("function")
    made_by = function.get("function") if isinstance(function, dict) else None
    if any(isinstance(one, type) and issubclass(one, SECRETS) for one in (cls, made_by)):
        raise SecretInAnnotation
    serialized_by = getattr((node.get("serialization") or {}).get("function"), "__name__", "")
    if serialized_by.startswith("_serialize_secret"):
        raise SecretInAnnotation


def _stored_config(node: dict[str, Any], copy: _Copy) -> dict[str, Any]:
    node["config"] = (node.get("config") or {}) | (_SHOWN if copy.hide else _STORED)
    return node


def _dataclass(node: dict[str, Any], copy: _Copy) -> dict[str, Any]:
    return restore_fields(_stored_config(node, copy), lambda annotation: copy.node(core_schema_of(annotation)))


def _set(node: dict[str, Any], _: _Copy) -> dict[str, Any]:
    return sorted_set(node)


def _enum(node: dict[str, Any], _: _Copy) -> dict[str, Any]:
    return stored_by_name(node)


_CHANGES: dict[str, Callable[[dict[str, Any], _Copy], dict[str, Any]]] = {
    "dataclass": _dataclass,
    "enum": _enum,
    "typed-dict": _stored_config,
    "set": _set,
    "frozenset": _set,
}
