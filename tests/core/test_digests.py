"""A digest tells commands, inputs and events apart, and only by what they mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.digests import command_digest, event_digest, input_digest

KEY, OTHER = b"k" * 16, b"o" * 16
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    max_leaves=10,
)


def test_each_part_of_a_command_counts() -> None:
    made = {
        command_digest(KEY, "step", "pay", b"{}"),
        command_digest(OTHER, "step", "pay", b"{}"),
        command_digest(KEY, "wait", "pay", b"{}"),
        command_digest(KEY, "step", "pays", b"{}"),
        command_digest(KEY, "step", "pay", b'{"a":1}'),
        command_digest(KEY, "stepp", "ay", b"{}"),
        command_digest(KEY, "step", "pay{", b"}"),
    }

    assert len(made) == 7
    assert {len(one) for one in made} == {8}
    assert command_digest(KEY, "step", "pay", b"{}") == command_digest(KEY, "step", "pay", b"{}")


def test_equal_inputs_agree_whatever_the_order_of_members_and_the_spelling_of_numbers() -> None:
    assert input_digest(KEY, b'{"a":1,"b":{"x":1.0,"y":2}}') == input_digest(KEY, b'{"b":{"y":2,"x":1},"a":1.0}')
    assert len(input_digest(KEY, b"{}")) == 16


@pytest.mark.parametrize("other", [b'{"a":"1"}', b'{"a":true}', b'{"a":1.5}', b'{"a":[1]}', b'{"b":1}', b"{}", b'{"a":1', b""])
def test_other_inputs_differ(other: bytes) -> None:
    assert input_digest(KEY, b'{"a":1}') != input_digest(KEY, other)
    assert input_digest(KEY, b'{"a":1}') != input_digest(OTHER, b'{"a":1}')


@given(JSON)
def test_an_input_is_told_by_its_value_alone(value: object) -> None:
    assert input_digest(KEY, json.dumps(value).encode()) == input_digest(
        KEY, json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).encode()
    )


def test_large_integers_are_told_apart() -> None:
    assert input_digest(KEY, str(2**63).encode()) != input_digest(KEY, str(2**63 + 1).encode())
    assert input_digest(KEY, b"1e400") == input_digest(KEY, b"1e400")


def test_any_bytes_have_a_digest() -> None:
    for data in (b"\xff\xfe", b"[" * 100_000, b"NaN", b"1" * 10_000):
        assert len(input_digest(KEY, data)) == 16


def test_each_part_of_an_event_counts() -> None:
    made = {event_digest("a", "b", b"1"), event_digest("ab", "", b"1"), event_digest("", "ab", b"1"), event_digest("a", "b", b"2")}

    assert len(made) == 4
    assert event_digest("a", "b", b'{"x":1,"y":2}') == event_digest("a", "b", b'{"y":2,"x":1}')
