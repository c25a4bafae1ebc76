"""A call's arguments as bytes and back: {"name": value} with defaults applied and names sorted.

Sorted, because a client without the code cannot know the signature's order and must give equal bytes.
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from .annotations import annotations_of
from .errors import Undecodable
from .value_codec import ValueCodec

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(slots=True, frozen=True)
class _Shape:
    """A signature, prepared for fast binding."""

    signature: inspect.Signature
    hints: dict[str, Any]
    sorted_names: tuple[str, ...]
    sorted_places: tuple[tuple[str, int], ...]  # (name, its place in a call by position), sorted by name
    simple: int  # a call with that many positional arguments and no keywords needs no binding; -1: every call does
    positional: tuple[str, ...]
    required: tuple[str, ...]
    var_positional: str | None
    keywords: tuple[str, ...]
    var_keyword: str | None


class ArgumentsCodec:
    """Encodes the arguments of *fn* after its first *skip* parameters; *where* names them in errors."""

    __slots__ = ("_codec", "_fn", "_parts", "_shape", "_skip", "where")

    def __init__(self, fn: Callable[..., Any], where: str, skip: int = 0) -> None:
        self._fn, self.where, self._skip = fn, where, skip
        self._shape: _Shape | None = None
        self._codec: ValueCodec[dict[str, Any]] = ValueCodec.of_arguments(self._annotation, where)
        self._parts: dict[str, ValueCodec[Any]] = {}

    def prepare(self) -> None:
        """Look at the signature and work out how its arguments are encoded, ahead of the first call; see `ValueCodec.prepare`."""
        self._codec.prepare()

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the arguments of the call encoded.

        Raises:
            TypeError: the function does not take them.
            SerializationError: one cannot be stored and restored unchanged; names where, path and type.
        """
        return self._codec.dump(self._named(args, kwargs))[0]

    def load(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments to call the function with.

        Raises:
            Undecodable: the signature does not take them.
        """
        try:
            named = self._codec.load(data)
        except Undecodable as error:
            named = self._completed(data, error)
        shape = self._shape or self._look()
        args = [named[name] for name in shape.positional]
        if shape.var_positional is not None:
            args += named[shape.var_positional]
        kwargs = {name: named[name] for name in shape.keywords}
        if shape.var_keyword is not None:
            kwargs |= named[shape.var_keyword]
        return tuple(args), kwargs

    def dump_plain(self, arguments: Sequence[Any] | Mapping[str, Any]) -> bytes:
        """Return JSON-like arguments encoded as `dump` encodes the values that they stand for.

        Raises:
            TypeError: the function does not take them.
            SerializationError: an annotation does not take one.
        """
        shape = self._shape or self._look()
        if isinstance(arguments, Mapping):
            given = inspect.BoundArguments(shape.signature, _by_name(shape, arguments))
        else:
            given = shape.signature.bind(*arguments)
        typed = {name: self._part(shape, name).accept({name: value})[name] for name, value in given.arguments.items()}
        given.apply_defaults()
        return self._codec.dump({name: typed.get(name, given.arguments[name]) for name in shape.sorted_names})[0]

    def marked(self, data: bytes) -> bytes:
        """Return encoded arguments as they are stored for listings: saying whether one of them is marked as redacted."""
        return self._codec.marked(data)

    def redacted(self, data: bytes) -> Any:
        """Return encoded arguments as JSON-able data for people: marked ones hidden, numbers exact. Never raises."""
        return self._codec.redacted(data)

    def _completed(self, data: bytes, error: Undecodable) -> dict[str, Any]:
        """Return arguments of a start by name whose client, without the code, could not know the defaults; else raise *error*."""
        shape = self._shape
        if shape is None:  # an annotation cannot be used
            raise error
        try:
            given = sorted(shape.hints.keys() & json.loads(data).keys())
        except (ValueError, AttributeError):
            raise error from None
        missing = shape.hints.keys() - set(given)
        if not missing or not missing.isdisjoint(shape.required):
            raise error
        present: ValueCodec[dict[str, Any]] = ValueCodec.of_arguments(lambda: _annotation(shape, given), self.where)
        return {name: _default(shape.signature.parameters[name]) for name in missing} | present.load(data)

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        shape = self._shape or self._look()
        if not kwargs and len(args) == shape.simple:
            return {name: args[place] for name, place in shape.sorted_places}
        bound = shape.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return {name: bound.arguments[name] for name in shape.sorted_names}

    def _annotation(self) -> Any:
        shape = self._shape or self._look()
        return _annotation(shape, shape.sorted_names)

    def _part(self, shape: _Shape, name: str) -> ValueCodec[Any]:
        if name not in self._parts:
            self._parts[name] = ValueCodec.of_arguments(lambda: _annotation(shape, (name,)), self.where)
        return self._parts[name]

    def _look(self) -> _Shape:
        self._shape = shape = _shape(self._fn, self.where, self._skip)
        return shape


def dump_untyped(arguments: Mapping[str, Any]) -> bytes:
    """Return JSON-like arguments by name in the layout of `ArgumentsCodec.dump`, without the code.

    Raises:
        SerializationError: a value is not JSON-like: it would come back as something else.
    """
    return _UNTYPED.dump({name: arguments[name] for name in sorted(arguments)})[0]


def _shape(fn: Callable[..., Any], where: str, skip: int) -> _Shape:
    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())[skip:]
    hints = annotations_of(fn, where)
    names = [parameter.name for parameter in parameters]
    kinds = {kind: tuple(p.name for p in parameters if p.kind is kind) for kind in inspect._ParameterKind}
    positional = tuple(p.name for p in parameters if p.kind in _POSITIONAL)
    simple = len(names) if len(names) == len(positional) else -1
    return _Shape(
        signature=signature.replace(parameters=parameters, return_annotation=signature.empty),
        hints={p.name: _held(p, hints.get(p.name, Any)) for p in parameters},
        sorted_names=tuple(sorted(names)),
        sorted_places=tuple((name, names.index(name)) for name in sorted(names)),
        simple=simple,
        positional=positional,
        required=tuple(p.name for p in parameters if p.default is p.empty and p.kind not in _VARIABLE),
        var_positional=next(iter(kinds[inspect.Parameter.VAR_POSITIONAL]), None),
        keywords=kinds[inspect.Parameter.KEYWORD_ONLY],
        var_keyword=next(iter(kinds[inspect.Parameter.VAR_KEYWORD]), None),
    )


def _by_name(shape: _Shape, arguments: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return arguments by parameter name; those of no parameter belong to `**kwargs`."""
    others = {name: value for name, value in arguments.items() if name not in shape.hints}
    given = OrderedDict((name, value) for name, value in arguments.items() if name in shape.hints)
    if others and shape.var_keyword is None:
        raise TypeError(f"got an unexpected argument {next(iter(others))!r}")
    if others and shape.var_keyword is not None:
        given[shape.var_keyword] = given.get(shape.var_keyword, {}) | others
    missing = [name for name in shape.required if name not in given]
    if missing:
        raise TypeError(f"missing a required argument: {missing[0]!r}")
    return given


class _NoOthers:
    """Refuses arguments of no parameter, and leaves it to each value's own type what else that may hold."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        cast("dict[str, Any]", handler.resolve_ref_schema(schema))["extra_behavior"] = "forbid"
        return schema


def _annotation(shape: _Shape, names: Iterable[str]) -> Any:
    return Annotated[TypedDict("Arguments", {name: shape.hints[name] for name in names}), _NoOthers]  # type: ignore[operator]


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return ()
    return {} if parameter.kind is inspect.Parameter.VAR_KEYWORD else parameter.default


def _held(parameter: inspect.Parameter, hint: Any) -> Any:
    """Return the annotation of what the parameter holds: `*args` hold a tuple, `**kwargs` a dict."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return tuple[hint, ...]
    return dict[str, hint] if parameter.kind is inspect.Parameter.VAR_KEYWORD else hint


_UNTYPED: ValueCodec[dict[str, Any]] = ValueCodec.of_arguments(lambda: dict[str, Any], "start by name")
