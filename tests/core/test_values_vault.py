"""The vault bounds every stored value and runs it through the App's codec."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from romulus.core.errors import SerializationError, Undecodable, ValueTooLarge
from romulus.core.values import Vault


class Zip:
    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class Broken:
    def encode(self, data: bytes) -> bytes:
        raise RuntimeError("no key")

    decode = encode


class Texts:
    def encode(self, data: bytes) -> Any:
        return "text"

    decode = encode


def test_what_was_sealed_is_opened() -> None:
    for codec in (None, Zip()):
        vault = Vault(codec, 100)
        assert vault.open(vault.seal(b"x" * 100, "input"), "input") == b"x" * 100
    assert Vault(Zip(), 100).seal(b"x" * 100, "input") != b"x" * 100


def test_a_value_over_the_limit_is_refused_with_what_size_and_limit() -> None:
    with pytest.raises(ValueTooLarge, match=r"step pay: result is 1,001 bytes, over the limit of 1,000 bytes \(value_max_bytes\)"):
        Vault(Zip(), 1000).seal(b"x" * 1001, "step pay: result")


@pytest.mark.parametrize("codec", [Broken(), Texts()])
def test_a_codec_that_fails_is_an_error_of_its_kind(codec: Any) -> None:
    with pytest.raises(SerializationError, match=r"step pay: result.*codec"):
        Vault(codec, 10).seal(b"1", "step pay: result")
    with pytest.raises(Undecodable, match=r"step pay: result.*codec"):
        Vault(codec, 10).open(b"1", "step pay: result")


def test_bytes_of_another_codec_are_undecodable() -> None:
    with pytest.raises(Undecodable, match=r"input cannot be decoded: the App's codec raised"):
        Vault(Zip(), 10).open(b"not zipped", "input")
