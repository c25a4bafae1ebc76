"""The last step before the store: the size limit, then the App's own codec (encryption, compression)."""

from __future__ import annotations

from typing import Protocol

from .errors import SerializationError, Undecodable, ValueTooLarge
from .failures import cut_failure

PROBE = b"null"


class Codec(Protocol):
    """What `App(codec=)` takes: turns every stored value into other bytes and back."""

    def encode(self, data: bytes, /) -> bytes:
        """Return what is stored for *data*."""
        ...

    def decode(self, data: bytes, /) -> bytes:
        """Return what `encode` was given. Raises whatever it likes where it cannot: the run is then held."""
        ...


class Vault:
    """Seals encoded values for the store and opens them; *value_max_bytes* bounds one before the codec."""

    __slots__ = ("_codec", "_max")

    def __init__(self, codec: Codec | None, value_max_bytes: int) -> None:
        self._codec, self._max = codec, value_max_bytes

    def seal(self, plain: bytes, what: str) -> bytes:
        """Return what is stored for *plain*; *what* names it in errors.

        Raises:
            ValueTooLarge: it is over the limit.
            SerializationError: the codec failed or returned no bytes.
        """
        if len(plain) > self._max:
            raise ValueTooLarge(
                f"{what} is {len(plain):,} bytes, over the limit of {self._max:,} bytes (value_max_bytes); "
                "store it elsewhere and pass a reference, or raise the limit"
            )
        return plain if self._codec is None else self._encode(self._codec, plain, what)

    def seal_failure(self, plain: bytes, what: str) -> bytes:
        """Return what is stored for an encoded failure (`core.failures`), cut where it is over the limit.

        Raises:
            SerializationError: the codec failed or returned no bytes.
        """
        plain = cut_failure(plain, self._max)
        return plain if self._codec is None else self._encode(self._codec, plain, what)

    def open(self, stored: bytes, what: str) -> bytes:
        """Return what `seal` was given.

        Raises:
            Undecodable: the codec cannot decode it.
        """
        if self._codec is None:
            return stored
        try:
            plain = self._codec.decode(stored)
        except Exception as error:
            raise Undecodable(f"{what} cannot be decoded: the App's codec raised {type(error).__name__}: {error}") from error
        return _bytes(plain, what, "decode", Undecodable)

    def works(self) -> bool:
        """Return whether the App's codec decodes what it encodes now: else it is the codec that fails, and not a value."""
        try:
            return self.open(self.seal(PROBE, "a probe"), "a probe") == PROBE
        except (SerializationError, Undecodable):
            return False

    def _encode(self, codec: Codec, plain: bytes, what: str) -> bytes:
        try:
            stored = codec.encode(plain)
        except Exception as error:
            raise SerializationError(f"{what} cannot be stored: the App's codec raised {type(error).__name__}: {error}") from error
        return _bytes(stored, what, "encode", SerializationError)


def _bytes(data: object, what: str, method: str, error: type[Undecodable | SerializationError]) -> bytes:
    if not isinstance(data, bytes):
        raise error(f"{what}: the App's codec must return bytes from {method}(), got {type(data).__name__}")
    return data
