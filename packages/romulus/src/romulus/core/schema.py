"""From an annotation to the two functions that encode and decode its values.

Pydantic makes the core schema; this module changes a copy of it so that values survive the way there and back:
base64 bytes and NaN/infinity constants in dataclasses and TypedDicts (a pydantic model keeps its own settings),
sets in sorted order, enums of odd values by name, dataclass fields that are not `__init__` arguments, and secrets refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

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
    schema = copy.whole(annotation)
    serializer = SchemaSerializer(schema, _STORED, _use_prebuilt=False)  # type: ignore[call-arg,arg-type,unused-ignore]
    validator = SchemaValidator(schema, _STORED, _use_prebuilt=False)  # type: ignore[call-arg,arg-type,unused-ignore]
    return Plan(serializer.to_json, validator.validate_json, schema, copy.redacted)


def shown_serializer(annotation: Any) -> Callable[..., bytes]:
    """Return what encodes values of *annotation* for people: marked parts hidden, NaN and infinity as text."""
    schema = _Copy(hide=True).whole(annotation)
    return SchemaSerializer(schema, _SHOWN, _use_prebuilt=False).to_json  # type: ignore[call-arg,arg-type,unused-ignore]


class _Copy:
    """One walk over a core schema that returns a changed copy."""

    def __init__(self, *, hide: bool = False) -> None:
        self.hide = hide
        self.redacted = False
        self.shared: dict[str, Any] = {}  # schemas by ref
        self.open: list[str] = []  # refs of dataclasses whose non-init fields are being added
        self.recursive: set[str] = set()  # those met again inside themselves

    def whole(self, annotation: Any) -> Any:
        """Return the changed copy of the schema of *annotation*, with all that is shared in one place."""
        schema = self.inner(annotation)
        return {"type": "definitions", "schema": schema, "definitions": list(self.shared.values())} if self.shared else schema

    def inner(self, annotation: Any) -> Any:
        """Return the same without what is shared."""
        schema: dict[str, Any] = self.node(cast("dict[str, Any]", TypeAdapter(annotation).core_schema))
        if schema["type"] != "definitions":
            return schema
        found = {shared["ref"]: shared for shared in schema["definitions"] if shared["type"] != "definition-ref"}
        self.shared = found | self.shared
        return schema["schema"]

    def node(self, node: dict[str, Any]) -> dict[str, Any]:
        marked = inside_mark(node)
        if marked is not None:
            self.redacted = True
            return hidden_schema() if self.hide else self.node(marked)
        _refuse_secrets(node)
        _refuse_functions(node)
        copy = {key: value if key in _NOT_SCHEMAS else self.part(value) for key, value in node.items()}
        change = _CHANGES.get(node["type"])
        return copy if change is None else change(copy, self)

    def part(self, part: Any) -> Any:
        if isinstance(part, dict):
            return self.table(cast("dict[str, Any]", part))
        if isinstance(part, list | tuple):  # a tuple is a union's (schema, label)
            parts = [self.part(item) for item in cast("Iterable[Any]", part)]
            return parts if isinstance(part, list) else tuple(parts)
        return part

    def table(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a schema, or of a table of schemas by name."""
        return self.node(table) if isinstance(table.get("type"), str) else {name: self.part(value) for name, value in table.items()}


def _refuse_secrets(node: dict[str, Any]) -> None:
    """Pydantic names secret types by class, by what makes them, or by what encodes them."""
    serialized_by = getattr(_function(node.get("serialization")), "__name__", "")
    made_by = _function(node.get("function"))
    if serialized_by.startswith("_serialize_secret") or any(_is_secret(one) for one in (node.get("cls"), made_by)):
        raise SecretInAnnotation


def _refuse_functions(node: dict[str, Any]) -> None:
    """Pydantic takes a function for the type of what it returns when it is called with what is stored; of a NamedTuple it is the class."""
    if node["type"] == "call" and not isinstance(node["function"], type):
        raise TypeError(f"{node['function']!r} is a function, not a type")


def _function(node: Any) -> Any:
    return cast("dict[str, Any]", node).get("function") if isinstance(node, dict) else None


def _is_secret(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, SECRETS)


def _stored_config(node: dict[str, Any], copy: _Copy) -> dict[str, Any]:
    node["config"] = (node.get("config") or {}) | (_SHOWN if copy.hide else _STORED)
    return node


def _dataclass(node: dict[str, Any], copy: _Copy) -> dict[str, Any]:
    ref = node.get("ref", "")
    if ref in copy.open:
        copy.recursive.add(ref)
        return {"type": "definition-ref", "schema_ref": ref}
    copy.open.append(ref)
    changed = restore_fields(_stored_config(node, copy), copy.inner)
    copy.open.remove(ref)
    if ref not in copy.recursive:
        return changed
    copy.shared[ref] = changed
    return {"type": "definition-ref", "schema_ref": ref}


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
