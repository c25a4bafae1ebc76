"""Whether a decoded value is the value that was given: the same types throughout, and where it is not.

Stricter than `==`: `True` is not `1`, a subclass is not its base, a `defaultdict` is not a `dict`. Laxer where a value cannot
stay what it was and nothing is lost: NaN is NaN, an int declared as float becomes that float, the time zone of an
aware datetime becomes its offset.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel

from .classes import type_of

_PLAIN = frozenset({str, int, bool, bytes, type(None)})
_MISSING: Any = object()


class Difference:
    """Where a value changed on the way there and back, and how."""

    __slots__ = ("decoded", "given", "path")

    def __init__(self, given: Any, decoded: Any) -> None:
        self.given, self.decoded = given, decoded
        self.path: list[str] = []  # innermost first

    def under(self, part: str) -> Difference:
        self.path.append(part)
        return self

    @property
    def added(self) -> bool:
        """Nothing was given in its place."""
        return self.given is _MISSING

    @property
    def lost(self) -> bool:
        """Nothing came back in its place."""
        return self.decoded is _MISSING

    def where(self) -> str:
        return "".join(reversed(self.path))


def difference(given: Any, decoded: Any) -> Difference | None:
    """Return the first place where *decoded* is not what was *given*, None: they are the same."""
    kind = type_of(decoded)
    if type(given) is not kind:
        return None if kind is float and type(given) is int and given == decoded else Difference(given, decoded)
    if kind in _PLAIN:
        return None if given == decoded else Difference(given, decoded)
    return _compare(kind)(given, decoded)


def _compare(kind: type) -> Callable[[Any, Any], Difference | None]:
    exact = _BY_TYPE.get(kind)
    if exact is not None:
        return exact
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclasses
    return next((compare for base, compare in _BY_BASE if issubclass(kind, base)), _others)


def _floats(given: float, decoded: float) -> Difference | None:
    same = given == decoded or (given != given and decoded != decoded)
    return None if same else Difference(given, decoded)


def _texts(given: Any, decoded: Any) -> Difference | None:
    return None if str(given) == str(decoded) else Difference(given, decoded)


def _sequences(given: Any, decoded: Any) -> Difference | None:
    if len(given) != len(decoded):
        return Difference(given, decoded)
    for at, (one, other) in enumerate(zip(given, decoded, strict=True)):
        found = difference(one, other)
        if found is not None:
            return found.under(f"[{at}]")
    return None


def _dicts(given: dict[Any, Any], decoded: dict[Any, Any]) -> Difference | None:
    if len(given) != len(decoded):
        return _differing_keys(given, decoded)
    for (key, value), (other_key, other) in zip(given.items(), decoded.items(), strict=True):
        if key is not other_key and difference(key, other_key) is not None:
            return _reordered(given, decoded)
        kind = type_of(value)
        if kind is type(other) and kind in _PLAIN and value == other:
            continue
        found = difference(value, other)
        if found is not None:
            return found.under(f"[{key!r}]")
    return None


def _reordered(given: dict[Any, Any], decoded: dict[Any, Any]) -> Difference | None:
    """A TypedDict comes back in the order of its declaration."""
    keys = {key: key for key in decoded}
    for key, value in given.items():
        other_key = keys.get(key, _MISSING)
        if other_key is _MISSING:
            return _differing_keys(given, decoded)
        found = difference(key, other_key) or difference(value, decoded[key])
        if found is not None:
            return found.under(f"[{key!r}]")
    return None


def _differing_keys(given: dict[Any, Any], decoded: dict[Any, Any]) -> Difference:
    for key, value in given.items():
        if key not in decoded:
            return Difference(value, _MISSING).under(f"[{key!r}]")
    return Difference(given, decoded)


def _defaultdicts(given: Any, decoded: Any) -> Difference | None:
    if given.default_factory is not decoded.default_factory:
        return Difference(given.default_factory, decoded.default_factory).under(".default_factory")
    return _dicts(given, decoded)


def _deques(given: Any, decoded: Any) -> Difference | None:
    if given.maxlen != decoded.maxlen:
        return Difference(given.maxlen, decoded.maxlen).under(".maxlen")
    return _sequences(given, decoded)


def _sets(given: Any, decoded: Any) -> Difference | None:
    if len(given) != len(decoded):
        return Difference(given, decoded)
    others = {item: item for item in decoded}
    nans = sum(item != item for item in decoded)
    for item in given:
        other = others.get(item, _MISSING)
        if other is _MISSING and item != item and nans:
            nans -= 1
            continue
        found = difference(item, other)
        if found is not None:
            return found.under(f"{{{item!r}}}")
    return None


def _moments(given: Any, decoded: Any) -> Difference | None:
    """Aware ones are the same by wall time and offset, naive ones by wall time and fold."""
    offset = given.utcoffset()
    if offset != decoded.utcoffset():
        return Difference(given, decoded)
    if given.tzinfo is not None:
        given, decoded = given.replace(tzinfo=None, fold=0), decoded.replace(tzinfo=None, fold=0)
    same = given == decoded and given.fold == decoded.fold
    return None if same else Difference(given, decoded)


def _dataclasses(given: Any, decoded: Any) -> Difference | None:
    return _attributes(given, decoded, (field.name for field in dataclasses.fields(given)))


def _models(given: Any, decoded: Any) -> Difference | None:
    return (
        _attributes(given, decoded, {**given.__dict__, **decoded.__dict__})
        or difference(given.__pydantic_extra__, decoded.__pydantic_extra__)
        or difference(given.__pydantic_private__, decoded.__pydantic_private__)
    )


def _attributes(given: Any, decoded: Any, names: Iterable[str]) -> Difference | None:
    for name in names:
        found = difference(getattr(given, name, _MISSING), getattr(decoded, name, _MISSING))
        if found is not None:
            return found.under(f".{name}")
    return None


def _identical(given: Any, decoded: Any) -> Difference | None:
    return None if given is decoded else _others(given, decoded)


def _others(given: Any, decoded: Any) -> Difference | None:
    equality: Any = type(given).__eq__
    attributes: dict[str, Any] | None = getattr(given, "__dict__", None)
    if equality is object.__eq__ and attributes is not None:
        return _attributes(given, decoded, attributes.keys() | cast("dict[str, Any]", vars(decoded)).keys())
    return None if bool(given == decoded) else Difference(given, decoded)


_BY_TYPE: Mapping[type, Callable[[Any, Any], Difference | None]] = {
    float: _floats,
    Decimal: _texts,
    dict: _dicts,
    list: _sequences,
    tuple: _sequences,
    set: _sets,
    frozenset: _sets,
    datetime: _moments,
    time: _moments,
    defaultdict: _defaultdicts,
    deque: _deques,
}
_BY_BASE: tuple[tuple[type, Callable[[Any, Any], Difference | None]], ...] = (
    (Enum, _identical),
    (BaseModel, _models),
    (defaultdict, _defaultdicts),
    (dict, _dicts),
    (list, _sequences),
    (tuple, _sequences),
    (set, _sets),
    (frozenset, _sets),
)
