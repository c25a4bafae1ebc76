"""Why a value cannot be stored, or read back: the sentence that names where, the path and the type.

Values themselves are not shown: an error ends up in logs, and the value may be redacted.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from .classes import type_name, type_of
from .errors import DefinitionError, SerializationError, Undecodable
from .sameness import Difference
from .schema import SECRETS
from .unstorable import model_with_own_settings, unstorable

_SHOWN_MAX = 3  # validation errors in one message
_TEXT_MAX = 500  # characters of another library's message
_PATH_MAX = 200  # characters
_UNKNOWN: Any = object()


class Site(NamedTuple):
    """What an error is about: where, and whether the value is a call's arguments by name."""

    where: str
    arguments: bool = False

    def at(self, path: str) -> str:
        """Return how a message begins that is about the part at *path*."""
        if self.arguments:
            path = re.sub(r"^(?:\['(\w+)'\]|\.(\w+))", r"argument \1\2", path)
        about = f"{self.where}: " if self.where else ""
        path = path if len(path) <= _PATH_MAX else f"{path[: _PATH_MAX // 2]}…{path[-_PATH_MAX // 2 :]}"
        return f"{about}{path or 'the value itself'}"


def secret(site: Site, path: str = "") -> SerializationError:
    """Return the refusal of a secret, as a value or by its annotation."""
    about = site.at(path) if path else f"{site.where}: the annotation"
    return SerializationError(
        f"{about} holds a secret, and secrets are never stored; read it from a resource inside the step that needs it"
    )


def changed(site: Site, value: Any, found: Difference) -> SerializationError:
    """Return the refusal of *value*, which would come back as something else."""
    return _never(site, value) or _changed(site, found)


def refused(site: Site, value: Any, error: Exception) -> SerializationError:
    """Return the refusal of *value*, which *error* stopped on the way there or back."""
    never = _never(site, value, str(error) if isinstance(error, PydanticSerializationError) else "")
    if never is not None:
        return never
    if isinstance(error, ValidationError):
        return SerializationError(f"{_errors(site, error, value)}; it does not fit what is declared{_model_hint(value)}")
    return SerializationError(f"{site.at('')} ({type_name(type_of(value))}) cannot be stored: {_one_line(error)}{_model_hint(value)}")


def unusable(site: Site, error: Exception) -> DefinitionError:
    """Return the error for an annotation that pydantic cannot use."""
    why = _one_line(error).partition(" For further information")[0].partition(" If you got this error")[0]
    return DefinitionError(f"{site.where}: the annotation cannot be used: {why}")


def undecodable(site: Site, annotation: Any, error: Exception) -> Undecodable:
    """Return the error for stored bytes that *annotation* does not take."""
    why = _errors(Site("", site.arguments), error) if isinstance(error, ValidationError) else _one_line(error)
    name = "arguments" if site.arguments else type_name(annotation) if isinstance(annotation, type) else str(annotation)
    return Undecodable(f"{site.where}: the stored value cannot be decoded as {name}: {why}")


def _never(site: Site, value: Any, complaint: str = "") -> SerializationError | None:
    """Return the refusal of *value* if no annotation could take it."""
    bad = unstorable(value, complaint)
    if bad is None:
        return None
    path, why = bad
    return SerializationError(f"{site.at(path)} {why}") if why else secret(site, path)


def _changed(site: Site, found: Difference) -> SerializationError:
    given, decoded = type_of(found.given), type_of(found.decoded)
    about = site.at(found.where())
    if issubclass(given, SECRETS):
        return secret(site, found.where())
    if found.added:
        return SerializationError(f"{about} has no value and would come back with one of {type_name(decoded)}")
    if found.lost:
        return SerializationError(f"{about} ({type_name(given)}) would be lost: the annotation has no place for it")
    if getattr(found.given, "fold", 0) and given is decoded:
        return SerializationError(f"{about} is {type_name(given)} with fold=1, which is kept only with a time zone; give it one")
    into = f"another {type_name(given)}" if given is decoded else type_name(decoded)
    return SerializationError(
        f"{about} is {type_name(given)} and would come back as {into}; annotate it as what it is, or convert it to what is declared"
    )


def _errors(site: Site, error: ValidationError, value: Any = _UNKNOWN) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{site.at(_path(item['loc']))}{_is(value, item['loc'])}: {item['msg']}" for item in found[:_SHOWN_MAX]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _is(value: Any, location: tuple[int | str, ...]) -> str:
    """Say what type the part of *value* at *location* has, as far as it leads there."""
    for part in location:
        value = _part(value, part)
    return "" if value is _UNKNOWN else f" is {type_name(type_of(value))}"


def _part(value: Any, part: int | str) -> Any:
    try:
        return value[part]
    except (TypeError, LookupError):
        return getattr(value, str(part), _UNKNOWN)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _one_line(error: Exception) -> str:
    text = re.sub(r"input_value=.*, input_type=", "input_type=", " ".join(str(error).split()))
    return text[:_TEXT_MAX] or type_name(type_of(error))


def _model_hint(value: Any) -> str:
    """Name the settings that a pydantic model keeps for itself."""
    model = model_with_own_settings(value)
    if model is None:
        return ""
    return (
        f"; {type_name(model)} is a pydantic model, which keeps its own settings: for bytes, NaN and infinity it needs "
        "model_config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', ser_json_inf_nan='constants')"
    )
