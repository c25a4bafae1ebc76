"""Text that a store cannot keep is refused at the boundary, by field and with the remedy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.text import InvalidText, check_text, escaped, surrogate_at

ANY_CHARACTER = st.characters(categories=None)


@pytest.mark.parametrize("value", ["", "order-42", "ü\U0001f600", "\\u0000", "a\nb", "x" * 10])
def test_ordinary_text_is_returned(value: str) -> None:
    assert check_text(value, "run ID", 10) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\x00b", r"^run ID has a NUL character at 1: 'a\\x00b'; remove it"),
        ("ab\ud800", r"^run ID has a lone surrogate at 2"),
        ("x" * 11, r"^run ID has 11 characters, at most 10 are allowed"),
        (b"x", r"^run ID must be a str, not bytes"),
        (None, r"^run ID must be a str, not NoneType"),
    ],
)
def test_text_that_cannot_be_stored_is_refused_by_field(value: Any, message: str) -> None:
    with pytest.raises(InvalidText, match=message):
        check_text(value, "run ID", 10)


@given(st.text(ANY_CHARACTER))
def test_what_passes_can_be_encoded_and_what_is_escaped_passes(value: str) -> None:
    assert check_text(escaped(value), "x", 10**9).encode().decode() == escaped(value)
    if surrogate_at(value) is None and "\x00" not in value:
        assert check_text(value, "x", 10**9) == escaped(value) == value
    else:
        with pytest.raises(InvalidText):
            check_text(value, "x", 10**9)
