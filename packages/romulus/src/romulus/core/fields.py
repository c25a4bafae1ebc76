"""Dataclass fields that are not `__init__` arguments: stored and restored like the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints


def restore_fields(node: dict[str, Any], schema_of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the dataclass schema *node* with its non-init fields stored too, and set after `__post_init__`.

    Pydantic leaves out those without a default and never reads those with one.
    """
    names = [field.name for field in dataclasses.fields(node["cls"]) if not field.init]
    arguments = node["schema"]
    if not names or arguments.get("type") != "dataclass-args":
        return node
    listed = {field["name"]: field for field in arguments["fields"]}
    missing = [name for name in names if name not in listed]
    hints = get_type_hints(node["cls"], include_extras=True) if missing else {}
    for name in missing:
        listed[name] = {"type": "dataclass-field", "name": name, "kw_only": True, "schema": schema_of(hints[name])}
    for name in names:
        listed[name] |= {"init": True, "kw_only": True}
    arguments["fields"] = _in_order(node["cls"], listed)
    node["fields"] = [field.name for field in dataclasses.fields(node["cls"])]
    return _set_last(node, names)


def _in_order(cls: Any, listed: dict[str, Any]) -> list[Any]:
    order = [name for name in cls.__dataclass_fields__ if name in listed]
    return [listed[name] for name in order] + [field for name, field in listed.items() if name not in order]


def _set_last(node: dict[str, Any], names: list[str]) -> dict[str, Any]:
    init_only = any(field.get("init_only") for field in node["schema"]["fields"])
    if not node.get("post_init") or init_only:  # init-only arguments reach `__post_init__` through pydantic alone
        return node
    node["post_init"] = False
    reference = node.pop("ref", None)

    def finish(value: Any) -> Any:
        stored = {name: getattr(value, name) for name in names}
        value.__post_init__()
        for name, part in stored.items():
            object.__setattr__(value, name, part)
        return value

    after = {"type": "function-after", "schema": node, "function": {"type": "no-info", "function": finish}}
    return after if reference is None else after | {"ref": reference}
