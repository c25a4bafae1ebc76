"""Why a value cannot be stored, or read back: the sentence that names where, the path and the type.

Values themselves are not shown: an error ends up in logs, and the value may be redacted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from .errors import SerializationError, Undecodable
from .sameness import Difference, difference, type_name
from .schema import SECRETS, Plan
from .text import surrogate_at

_DEPTH_MAX = 200
_SHOWN_MAX = 3  # validation errors in one message
_ROOT = "the value itself"


def secret(where: str, path: str = "") -> SerializationError:
    """Return the refusal of a secret as a value."""
    at = f" at {path}" if path else ""
    return SerializationError(f"{where}: a secret{at} is never stored; read it from a resource inside the step that needs it")


def changed(where: str, found: Difference) -> SerializationError:
    """Return the refusal of a value that would come back as something else."""
    given, decoded = type(found.given), type(found.decoded)
    path = found.where() or _ROOT
    if issubclass(given, SECRETS):
        return secret(where, path)
    if decoded is object:
        return SerializationError(f"{where}: {path} ({type_name(given)}) would be lost: the annotation has no place for it")
    into = f"another {type_name(given)}" if given is decoded else f"{type_name(decoded)}"
    return SerializationError(
        f"{where}: {path} is {type_name(given)} and would come back as {into}; "
        f"annotate it as what it is, or convert it to what is declared{_model_hint(found.given)}"
    )


def refused(where: str, plan: Plan, value: Any, error: Exception) -> SerializationError:
    """Return the refusal of *value*, which *error* stopped on the way there or back."""
    bad = _unstorable(value, "", 0)
    if bad is not None:
        return SerializationError(f"{where}: {bad}")
    if isinstance(error, ValidationError):
        return SerializationError(f"{where}: does not come back from what is stored: {_errors(error)}{_model_hint(value)}")
    found = _lossy_difference(plan, value)
    if found is not None:
        return changed(where, found)
    return SerializationError(f"{where}: {type_name(type(value))} cannot be stored: {_one_line(error)}{_model_hint(value)}")


def undecodable(where: str, annotation: Any, error: Exception) -> Undecodable:
    """Return the error for stored bytes that *annotation* does not take."""
    why = _errors(error) if isinstance(error, ValidationError) else _one_line(error)
    name = type_name(annotation) if isinstance(annotation, type) else str(annotation)
    return Undecodable(f"{where}: the stored value cannot be decoded as {name}: {why}")


def _errors(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{_path(item['loc'])}: {item['msg']}" for item in found[:_SHOWN_MAX]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location) or _ROOT


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type_name(type(error))


def _lossy_difference(plan: Plan, value: Any) -> Difference | None:
    """Encode whatever can be, to see where it comes back as something else."""
    try:
        return difference(value, plan.from_json(plan.to_json(value, by_alias=False, round_trip=True, warnings=False), by_alias=True, by_name=True))
    except Exception:
        return None


def _unstorable(value: Any, path: str, depth: int) -> str | None:
    """Return what is wrong with the innermost part of *value* that no annotation could take."""
    at = path or _ROOT
    if isinstance(value, str):
        surrogate = surrogate_at(value)
        return None if surrogate is None else f"{at} has a lone surrogate at character {surrogate}: it is not valid text and cannot be stored"
    if isinstance(value, SECRETS):
        return f"a secret at {at} is never stored; read it from a resource inside the step that needs it"
    if depth > _DEPTH_MAX:
        return f"{at} is nested more than {_DEPTH_MAX} deep, or holds itself"
    parts = list(_parts(value))
    for part, inner in parts:
        bad = _unstorable(inner, path + part, depth + 1)
        if bad is not None:
            return bad
    return None if parts else _foreign(value, at)


def _foreign(value: Any, at: str) -> str | None:
    if isinstance(value, bytes | bytearray | memoryview | Mapping | set | frozenset | list | tuple):
        return None
    try:
        to_json(value, inf_nan_mode="constants")
    except ValueError as error:
        return f"{at} is {type_name(type(value))}, which cannot be stored: {_one_line(error)}"
    except Exception:
        return None
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f" (the key {key!a})", key) for key in value if isinstance(key, str) and surrogate_at(key) is not None)
        yield from ((f"[{key!a}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{at}]", inner) for at, inner in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif isinstance(value, BaseModel):
        yield from ((f".{name}", inner) for name, inner in value.__dict__.items())


def _model_hint(value: Any) -> str:
    """Name the settings that a pydantic model keeps for itself."""
    model = _model_with_bytes(value, 0)
    if model is None:
        return ""
    return (
        f"; {type_name(model)} is a pydantic model, which keeps its own settings: set "
        "model_config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', ser_json_inf_nan='constants')"
    )


def _model_with_bytes(value: Any, depth: int) -> type[BaseModel] | None:
    if isinstance(value, BaseModel):
        return type(value)
    if depth > _DEPTH_MAX:
        return None
    return next((found for _, inner in _parts(value) if (found := _model_with_bytes(inner, depth + 1)) is not None), None)


