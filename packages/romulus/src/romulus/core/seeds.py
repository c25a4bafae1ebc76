"""The seeds of a generation: what makes its random numbers, UUIDs and keys alike on every replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from random import Random

SEED_BYTES = 16


class Seeds:
    """An immutable list of (from position, seed): a draw uses the seed in force at the last delivered entry."""

    __slots__ = ("_items",)

    def __init__(self, items: tuple[tuple[int, bytes], ...]) -> None:
        if not items or items[0][0] != 0:
            raise ValueError("the first seed of a generation is in force from position 0")
        if any(later < earlier or earlier == later > 0 for (earlier, _), (later, _) in pairwise(items)):
            raise ValueError("seeds must stand in ascending order of position")
        self._items = items

    @classmethod
    def first(cls, seed_hex: str) -> Seeds:
        """Return the seeds of a new generation that begins with the seed *seed_hex*."""
        return cls(((0, bytes.fromhex(seed_hex)),))

    @classmethod
    def parse(cls, json_text: str) -> Seeds:
        """Return the seeds stored as *json_text*: [[from position, seed hex], …]."""
        return cls(tuple((int(position), bytes.fromhex(seed)) for position, seed in json.loads(json_text)))

    def dump(self) -> str:
        """Return what `parse` takes."""
        return json.dumps([[position, seed.hex()] for position, seed in self._items], separators=(",", ":"))

    def in_force(self, position: int) -> bytes:
        """Return the seed in force once *position* entries have been delivered."""
        for start, seed in reversed(self._items):
            if start <= position:
                return seed
        raise ValueError(f"no seed is in force at position {position}")

    @property
    def newest(self) -> bytes:
        """The seed that IDs of commands without an outcome come from."""
        return self._items[-1][1]

    def with_new(self, position: int, seed: bytes) -> Seeds:
        """Return these seeds cut below *position*, then *seed* in force from there on."""
        kept = tuple(item for item in self._items if item[0] < position)
        return Seeds((*kept, (position, seed)))

    def renewed(self, position: int, seed: bytes) -> Seeds:
        """Return what `with_new` does, the first seed kept although one from position 0 replaces it: so the pass is known as a retry."""
        return self.with_new(position, seed) if position else Seeds((self._items[0], (0, seed)))

    @property
    def replaced(self) -> bool:
        """Whether a retry or a fork has replaced a seed."""
        return len(self._items) > 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, Seeds) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Seeds({len(self._items)} from {[position for position, _ in self._items]})"  # never the seeds: IDs derive from them


def derive(seed: bytes, *parts: str | int | bytes) -> bytes:
    """Return 16 bytes derived from *seed* and *parts*: other parts give other, unrelated bytes."""
    digest = blake2b(digest_size=SEED_BYTES, key=seed[:64], person=b"romulus derive")
    for part in parts:
        tag, data = _tagged(part)
        digest.update(tag + len(data).to_bytes(8, "big") + data)
    return digest.digest()


def rng(seed: bytes) -> Random:
    """Return a random number generator whose draws depend on *seed* alone, on every Python."""
    return Random(int.from_bytes(seed, "big"))  # noqa: S311  # determinism is meant, secrecy is not


def _tagged(part: str | int | bytes) -> tuple[bytes, bytes]:
    if isinstance(part, str):
        return b"s", part.encode()
    if isinstance(part, int):
        return b"i", str(part).encode()
    return b"b", part
