"""Arguments are stored by name with defaults applied: the same arguments give the same bytes, however they are given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, SecretStr

from romulus.core.errors import DefinitionError, SerializationError, Undecodable
from romulus.core.values import ArgumentsCodec, Redacted, ValueCodec, dump_untyped

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


@dataclass
class Order:
    id: str
    cents: int = 100


class Customer(BaseModel):
    name: str


class NotDescribed:
    pass


async def pay(order: Order, amount: Decimal = Decimal("1.10"), *, note: str | None = None) -> str:
    return ""


def many(a: int, /, b: float = 2.0, *rest: bytes, tags: frozenset[str] = frozenset(), **extra: int) -> None:
    return None


def one(n: int) -> None:
    return None


def untyped(a, b=1):  # type: ignore[no-untyped-def]
    return None


def with_op(op: Any, n: int, token: str = "") -> None:
    return None


def unresolvable(x: Missing) -> None:
    return None


def keeps_a_secret(token: SecretStr | None = None) -> None:
    return None


def hides(token: Annotated[str, Redacted], n: int) -> None:
    return None


PAY = ArgumentsCodec(pay, "step pay")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((Order("1"),), {}),
        ((Order("1", 100), Decimal("1.10")), {}),
        ((), {"order": Order("1"), "note": None}),
        ((), {"note": None, "amount": Decimal("1.10"), "order": Order("1")}),
    ],
)
def test_the_same_arguments_give_the_same_bytes_however_they_are_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert PAY.dump(args, kwargs) == b'{"amount":"1.10","note":null,"order":{"id":"1","cents":100}}'


def test_arguments_come_back_as_the_function_takes_them() -> None:
    args, kwargs = PAY.load(PAY.dump((Order("1", 5),), {"note": "x"}))
    assert (args, kwargs) == ((Order("1", 5), Decimal("1.10")), {"note": "x"})

    codec = ArgumentsCodec(many, "step many")
    args, kwargs = codec.load(codec.dump((1, 2, b"\xff", b""), {"tags": frozenset({"b", "a"}), "z": 1}))
    assert (args, kwargs) == ((1, 2.0, b"\xff", b""), {"tags": frozenset({"a", "b"}), "z": 1})
    assert type(args[1]) is float


@pytest.mark.parametrize(
    "call", [((), {}), ((Order("1"), Decimal(1), "x"), {}), ((Order("1"),), {"nope": 1}), ((Order("1"),), {"order": Order("2")})]
)
def test_wrong_arguments_raise_type_error_as_a_call_would(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    with pytest.raises(TypeError):
        PAY.dump(*call)
    with pytest.raises(TypeError):
        ArgumentsCodec(one, "step one").dump((), {})


def test_an_argument_that_would_change_is_refused_by_name_and_type() -> None:
    with pytest.raises(SerializationError, match=r"^step one: argument n is str: Input should be a valid integer"):
        ArgumentsCodec(one, "step one").dump(("1",), {})
    with pytest.raises(SerializationError, match=r"^step pay: argument order\.cents is float: "):
        PAY.dump((Order("1", 1.5),), {})  # type: ignore[arg-type]


def test_an_unannotated_parameter_takes_what_json_takes() -> None:
    codec = ArgumentsCodec(untyped, "step untyped")

    assert codec.load(codec.dump(([1, "x"],), {})) == (([1, "x"], 1), {})
    with pytest.raises(SerializationError, match=r"argument a is tuple"):
        codec.dump(((1,),), {})


def test_leading_parameters_that_the_engine_supplies_are_not_stored() -> None:
    codec = ArgumentsCodec(with_op, "operation x", skip=1)

    assert codec.dump((4,), {}) == b'{"n":4,"token":""}'
    assert codec.load(b'{"n":4,"token":""}') == ((4, ""), {})


def test_plain_arguments_give_the_bytes_of_typed_ones() -> None:
    typed = PAY.dump((Order("1", 7),), {"amount": Decimal("2.50")})

    assert PAY.dump_plain({"order": {"cents": 7, "id": "1"}, "amount": "2.50"}) == typed
    assert PAY.dump_plain([{"id": "1", "cents": 7}, "2.50"]) == typed


def test_plain_arguments_may_name_variable_ones() -> None:
    codec = ArgumentsCodec(many, "step many")
    typed = codec.dump((1, 2, b"\xff"), {"z": 1})

    assert codec.dump_plain({"a": 1, "b": 2, "rest": ["_w=="], "z": 1}) == typed
    assert codec.dump_plain({"a": 1, "b": 2, "rest": ["_w=="], "extra": {"z": 1}}) == typed
    assert codec.dump_plain([1]) == codec.dump((1,), {})
    for wrong in ({}, {"b": 1}):
        with pytest.raises(TypeError, match="missing a required argument: 'a'"):
            codec.dump_plain(wrong)


@pytest.mark.parametrize(("plain", "message"), [({"n": "1"}, "valid integer"), ({"n": None}, "valid integer"), ({"n": object()}, "object")])
def test_plain_arguments_that_do_not_fit_are_refused_by_name(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(SerializationError, match=rf"step one: argument n.*{message}"):
        ArgumentsCodec(one, "step one").dump_plain(plain)
    with pytest.raises(TypeError):
        ArgumentsCodec(one, "step one").dump_plain({"m": 1})


def test_a_client_without_the_code_gives_the_same_bytes() -> None:
    plain = {"order": {"id": "1", "cents": 100}, "note": None, "amount": "1.10"}

    assert dump_untyped(plain) == PAY.dump((Order("1"),), {})
    with pytest.raises(SerializationError, match=r"argument at is datetime\.datetime and would come back as str"):
        dump_untyped({"at": datetime(2024, 1, 1)})


def test_an_annotation_that_cannot_be_resolved_names_the_function_on_first_use() -> None:
    codec = ArgumentsCodec(unresolvable, "step unresolvable")

    with pytest.raises(DefinitionError, match=r"step unresolvable: an annotation of unresolvable .*Missing"):
        codec.dump((1,), {})


def test_what_was_stored_cannot_be_decoded_where_an_annotation_cannot_be_used() -> None:
    with pytest.raises(Undecodable, match=r"step unresolvable: "):
        ArgumentsCodec(unresolvable, "step unresolvable").load(b"{}")
    with pytest.raises(Undecodable, match=r"step s: .*secret"):
        ValueCodec(SecretStr, "step s").load(b'"x"')
    with pytest.raises(DefinitionError, match=r"^step s: the annotation cannot be used: .*NotDescribed.*type to fully support it\.$"):
        ValueCodec(NotDescribed, "step s").dump(NotDescribed())


def test_a_type_of_an_enclosing_function_is_found_where_the_body_uses_it() -> None:
    @dataclass
    class Inner:
        n: int

    def step(x: Inner) -> Inner:
        return Inner(x.n)

    codec = ArgumentsCodec(step, "step step")
    assert codec.load(codec.dump((Inner(1),), {})) == ((Inner(1),), {})
    assert ValueCodec.returned_by(step, "step step").dump(Inner(2))[1] == Inner(2)


@pytest.mark.parametrize("annotation", [SecretStr, list[SecretStr | None], dict[str, SecretStr]])
def test_a_secret_is_refused_by_its_annotation(annotation: Any) -> None:
    with pytest.raises(SerializationError, match=r"secrets are never stored.*resource"):
        ValueCodec(annotation, "step x").dump(None)
    with pytest.raises(SerializationError, match=r"step s: .*secrets are never stored"):
        ArgumentsCodec(keeps_a_secret, "step s").dump((), {})


def test_a_secret_is_refused_as_a_value() -> None:
    with pytest.raises(SerializationError, match=r"step x: \['a'\]\[0\] holds a secret") as refusal:
        ValueCodec(Any, "step x").dump({"a": [SecretStr("hunter2")]})
    assert "hunter2" not in str(refusal.value)


def test_arguments_of_another_signature_are_undecodable() -> None:
    with pytest.raises(Undecodable, match=r"step one: the stored value cannot be decoded as arguments: argument n: Field required"):
        ArgumentsCodec(one, "step one").load(b'{"m":1}')


async def _ordered(order: str, count: int = 2, *, note: str = "none") -> None: ...


def test_a_start_by_name_without_the_code_gets_the_defaults_where_the_code_is() -> None:
    codec = ArgumentsCodec(_ordered, "workflow w")
    assert codec.load(dump_untyped({"order": "x"})) == (("x", 2), {"note": "none"})
    assert codec.load(dump_untyped({"order": "x", "note": "y"})) == (("x", 2), {"note": "y"})
    with pytest.raises(Undecodable, match="argument order: Field required"):
        codec.load(dump_untyped({"count": 3}))
    with pytest.raises(Undecodable, match="argument count: Input should be a valid integer"):
        codec.load(dump_untyped({"order": "x", "count": "three"}))


@pytest.mark.parametrize("arguments", [{"order": "x", "count": 1, "note": "y", "more": 1}, {"order": "x", "more": 1}])
def test_an_argument_of_no_parameter_is_refused_by_name(arguments: dict[str, Any]) -> None:
    with pytest.raises(Undecodable, match="argument more: Extra inputs are not permitted"):
        ArgumentsCodec(_ordered, "workflow w").load(dump_untyped(arguments))


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b'"x"'])
def test_what_is_no_object_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable, match="workflow w"):
        ArgumentsCodec(_ordered, "workflow w").load(data)


def test_redacted_arguments_are_hidden_from_people_and_stored_whole() -> None:
    codec = ArgumentsCodec(hides, "step hides")
    data = codec.dump(("hunter2", 2**70), {})

    assert codec.load(data) == (("hunter2", 2**70), {})
    assert codec.redacted(data) == {"n": 2**70, "token": "[redacted]"}
