"""What is marked `Redacted` is stored whole and never shown."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from pydantic_core import core_schema
from typing_extensions import TypedDict

from romulus.core.values import ArgumentsCodec, Redacted, ValueCodec

Token = Annotated[str, Redacted]


@dataclass
class Account:
    name: str
    token: Token
    spare: Token | None = None
    n: int = 2**70


class Model(BaseModel):
    pin: Annotated[int, Redacted]
    price: Decimal = Decimal("1.10")


class Keyed(TypedDict):
    secret: Annotated[dict[str, Any], Redacted]


@dataclass
class Node:
    key: Token
    children: list[Node] = field(default_factory=list)


@pytest.mark.parametrize(
    ("annotation", "value", "shown"),
    [
        (Token, "hunter2", "[redacted]"),
        (list[Token], ["hunter2"], ["[redacted]"]),
        (dict[str, Token], {"a": "hunter2"}, {"a": "[redacted]"}),
        (Account, Account("a", "hunter2"), {"name": "a", "token": "[redacted]", "spare": None, "n": 2**70}),
        (list[Account], [Account("a", "x", "hunter2")], [{"name": "a", "token": "[redacted]", "spare": "[redacted]", "n": 2**70}]),
        (Model, Model(pin=4321), {"pin": "[redacted]", "price": "1.10"}),
        (Model | Account, Model(pin=4321), {"pin": "[redacted]", "price": "1.10"}),
        (Keyed, {"secret": {"a": "hunter2"}}, {"secret": "[redacted]"}),
        (Node, Node("hunter2", [Node("hunter2")]), {"key": "[redacted]", "children": [{"key": "[redacted]", "children": []}]}),
        (Annotated[Account | None, Redacted], Account("hunter2", "x"), "[redacted]"),
        (tuple[Annotated[float, Redacted], float], (1.5, math.inf), ["[redacted]", "Infinity"]),
    ],
)
def test_marked_parts_are_hidden_and_the_others_shown_exactly(annotation: Any, value: Any, shown: Any) -> None:
    codec: ValueCodec[Any] = ValueCodec(annotation, "x")
    data, decoded = codec.dump(value)

    assert decoded == value
    assert codec.redacted(data) == shown
    assert "hunter2" not in json.dumps(codec.redacted(data))
    assert "4321" not in json.dumps(codec.redacted(data))


def test_without_marks_everything_is_shown_with_exact_numbers() -> None:
    codec: ValueCodec[Any] = ValueCodec(Any, "x")

    assert codec.redacted(codec.dump({"n": 2**70, "x": [math.inf, 0.1]})[0]) == {"n": 2**70, "x": ["Infinity", 0.1]}
    assert codec.redacted(b'{"a":NaN}') == {"a": "NaN"}


@pytest.mark.parametrize("data", [b"", b"\xff", b'{"name":"hunter2"}', b"[1"])
def test_what_cannot_be_decoded_is_hidden_whole(data: bytes) -> None:
    assert ValueCodec(Account, "x").redacted(data) == "[redacted]"


def test_arguments_are_the_same_bytes_with_and_without_marks() -> None:
    def plain(token: str, count: int) -> None: ...
    def marked(token: Annotated[str, Redacted], count: int) -> None: ...

    data = ArgumentsCodec(plain, "f").dump(("hunter2", 1), {})
    assert ArgumentsCodec(marked, "f").dump(("hunter2", 1), {}) == data  # digests and starts are compared by them


class Odd(str):
    """Refused by strict validation, as types are whose authors think of Python objects only."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        made = core_schema.no_info_after_validator_function(cls, core_schema.str_schema())
        return core_schema.lax_or_strict_schema(made, core_schema.is_instance_schema(cls), serialization=core_schema.to_string_ser_schema())


def test_a_type_that_strictness_refuses_is_restored_beside_a_mark_too() -> None:
    codec: ValueCodec[Any] = ValueCodec(tuple[Annotated[str, Redacted], Odd], "x")

    assert codec.dump(("hunter2", Odd("a")))[1] == ("hunter2", Odd("a"))
    assert codec.load(codec.dump(("hunter2", Odd("a")))[0]) == ("hunter2", Odd("a"))
