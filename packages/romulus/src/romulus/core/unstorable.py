"""What no annotation could store: found by walking the value itself, once encoding it has failed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard, cast

from pydantic import BaseModel

from .classes import type_name, type_of
from .schema import SECRETS
from .text import surrogate_at

_DEPTH_MAX = 200
_INT_BITS_MAX = 14_000  # about 4,300 digits, the most that Python and pydantic read


def unstorable(value: Any, complaint: str = "") -> tuple[str, str] | None:
    """Return (path, what is wrong) of the first part of *value* that cannot be stored; "" is wrong with secrets.

    *complaint* is pydantic's message about a class it does not know.
    """
    return _search(value, complaint, "", 0)


def model_with_own_settings(value: Any) -> type[BaseModel] | None:
    """Return the first pydantic model's class in *value* that holds bytes, NaN or infinity."""
    return _model(value, 0)


def _search(value: Any, complaint: str, path: str, depth: int) -> tuple[str, str] | None:
    wrong = _wrong(value, complaint, depth)
    if wrong is not None:
        return path, wrong
    for part, inner in _parts(value):
        found = _search(inner, complaint, path + part, depth + 1)
        if found is not None:
            return found
    return None


def _wrong(value: Any, complaint: str, depth: int) -> str | None:
    if isinstance(value, str):
        at = surrogate_at(value)
        return None if at is None else f"has a lone surrogate at character {at}: it is not valid text; decode what it came from properly"
    if isinstance(value, SECRETS):
        return ""
    if depth > _DEPTH_MAX:
        return f"is nested more than {_DEPTH_MAX} deep, or holds itself"
    if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        return "is an int of more than 4,300 digits, which cannot be read back; pass it as bytes"
    unset = _unset_field(value)
    if unset is not None:
        return f"is {type_name(type_of(value))} without a value for its field {unset}"
    if complaint and repr(type_of(value)) in complaint:
        return f"is {type_name(type_of(value))}, which cannot be stored; pass what it stands for, or make it in a resource"
    return None


def _unset_field(value: Any) -> str | None:
    if isinstance(value, type) or not dataclasses.is_dataclass(value):
        return None
    return next((field.name for field in dataclasses.fields(value) if not hasattr(value, field.name)), None)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if _is_mapping(value):
        items = value.items()
        yield from ((f" key {key!a}", key) for key, _ in items if isinstance(key, str) and surrogate_at(key) is not None)
        yield from ((f"[{key!a}]", inner) for key, inner in items)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{at}]", inner) for at, inner in enumerate(cast("Iterable[Any]", value)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif isinstance(value, BaseModel):
        yield from ((f".{name}", inner) for name, inner in value.__dict__.items())


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _model(value: Any, depth: int) -> type[BaseModel] | None:
    if isinstance(value, BaseModel) and any(_needs_settings(inner) for _, inner in _parts(value)):
        return type(value)
    if depth > _DEPTH_MAX:
        return None
    return next((found for _, inner in _parts(value) if (found := _model(inner, depth + 1)) is not None), None)


def _needs_settings(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value))
