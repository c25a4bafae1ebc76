"""For any value of an annotation: it comes back the same, from the same bytes, or it is refused."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.errors import SerializationError, Undecodable
from romulus.core.sameness import difference
from romulus.core.values import ArgumentsCodec, ValueCodec, dump_untyped

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None))
    | st.binary()
    | st.decimals()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@dataclass
class Everything:
    text: str
    number: int
    real: float
    data: bytes
    exact: Decimal
    moment: datetime
    day: date
    clock: time
    span: timedelta
    identity: UUID
    names: set[str]
    pairs: tuple[tuple[int, bytes], ...]
    table: dict[int, list[float | None]]
    either: int | str | bytes | None


EVERYTHING = st.builds(
    Everything,
    text=TEXT,
    number=st.integers(),
    real=st.floats(),
    data=st.binary(),
    exact=st.decimals(allow_nan=False, allow_infinity=False),
    moment=st.datetimes(timezones=st.none() | OFFSETS).map(lambda moment: moment.replace(fold=0)),
    day=st.dates(),
    clock=st.times().map(lambda clock: clock.replace(fold=0)),
    span=st.timedeltas(),
    identity=st.uuids(),
    names=st.sets(TEXT),
    pairs=st.lists(st.tuples(st.integers(), st.binary())).map(tuple),
    table=st.dictionaries(st.integers(), st.lists(st.floats() | st.none())),
    either=st.integers() | TEXT | st.none(),
)

ANY: ValueCodec[Any] = ValueCodec(Any, "x")
WHOLE: ValueCodec[Everything] = ValueCodec(Everything, "x")
READERS: list[ValueCodec[Any]] = [ValueCodec(annotation, "x") for annotation in (int, str, list[int], dict[str, float], Everything)]


@given(EVERYTHING)
def test_every_field_of_a_dataclass_comes_back_the_same(value: Everything) -> None:
    data, decoded = WHOLE.dump(value)

    assert difference(value, decoded) is None
    assert WHOLE.dump(decoded)[0] == data
    assert difference(WHOLE.load(data), decoded) is None


@given(JSON)
def test_what_is_json_comes_back_under_any(value: Any) -> None:
    assert difference(value, ANY.dump(value)[1]) is None


@given(ANYTHING)
def test_anything_comes_back_with_identical_types_or_is_refused(value: Any) -> None:
    try:
        _, decoded = ANY.dump(value)
    except SerializationError:
        return
    assert repr(decoded) == repr(value)


@given(st.binary() | JSON.map(lambda value: ANY.dump(value)[0]))
def test_foreign_bytes_are_decoded_to_what_gives_them_or_refused(data: bytes) -> None:
    for codec in READERS:
        with suppress(Undecodable):
            value = codec.load(data)
            assert difference(codec.load(codec.dump(value)[0]), value) is None


def taking(b: int, a: str, *, c: float = 1.0) -> None:
    return None


@given(st.integers(), TEXT, st.floats(allow_nan=False))
def test_a_client_without_the_code_gives_the_bytes_of_the_typed_one(b: int, a: str, c: float) -> None:
    codec = ArgumentsCodec(taking, "step taking")

    assert codec.dump((b, a), {"c": c}) == dump_untyped({"a": a, "b": b, "c": c}) == codec.dump_plain({"c": c, "b": b, "a": a})
    assert codec.load(codec.dump((b, a), {"c": c})) == ((b, a), {"c": c})


@pytest.mark.parametrize(
    ("given_value", "decoded"), [(1, True), (1.0, 1), (True, 1), ("1", 1), ([1], (1,)), ({1: 2}, {True: 2}), ({1}, {True}), (math.nan, 1.0)]
)
def test_values_that_only_compare_equal_are_not_the_same(given_value: Any, decoded: Any) -> None:
    assert difference(given_value, decoded) is not None
    assert difference([{"k": given_value}], [{"k": decoded}]) is not None
