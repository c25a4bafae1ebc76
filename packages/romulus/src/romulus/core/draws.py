"""Random numbers and UUIDs of a run: the same on every pass, from the seed in force."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from .seeds import derive, rng

if TYPE_CHECKING:
    from random import Random


class Draws:
    """Two streams, so that drawing from one does not move the other. A new seed goes into the generators already handed out."""

    __slots__ = ("_numbers", "_seed", "_uuids")

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._numbers: Random | None = None
        self._uuids: Random | None = None

    def reseed(self, seed: bytes) -> None:
        """Draw from *seed* from now on."""
        self._seed, self._uuids = seed, None
        if self._numbers is not None:
            self._numbers.setstate(self._fresh("rng").getstate())

    def rng(self) -> Random:
        """Return the run's generator, always the same object."""
        if self._numbers is None:
            self._numbers = self._fresh("rng")
        return self._numbers

    def uuid4(self) -> UUID:
        """Return the next UUID."""
        if self._uuids is None:
            self._uuids = self._fresh("uuid4")
        return UUID(int=self._uuids.getrandbits(128), version=4)

    def _fresh(self, stream: str) -> Random:
        return rng(derive(self._seed, stream))
