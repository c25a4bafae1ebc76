"""An instance in development mode: it notes what it was given from the record and what it asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from romulus.core.commands import Command, WorkflowSpec
from romulus.core.instance import UNSET, Instance, RunInfo
from romulus.core.record import Entry, Kind
from romulus.core.seeds import Seeds
from romulus.core.values import Vault

from .words import Asked, Committed, Past, Turn, outcome_word

if TYPE_CHECKING:
    from romulus.worker.driver import RunDriver

PAST_MAX = 1_000  # recorded turns told at once


class Scribe(Protocol):
    """Who passes on what an instance notes."""

    def past(self, watched: Watched, past: Past) -> None: ...
    def closed(self, watched: Watched) -> None: ...


class Watched(Instance):
    """Behaves as any instance and keeps notes of it until they are told."""

    __slots__ = ("_asked", "_begins", "_past", "_scribe", "difference", "driver", "followed", "key")

    def __init__(
        self, scribe: Scribe, key: int, spec: WorkflowSpec, info: RunInfo, arguments: bytes, seeds: Seeds, started_at: int, vault: Vault
    ) -> None:
        super().__init__(spec, info, arguments, seeds, started_at, vault)
        self._scribe = scribe
        self.key = key
        self.followed = True  # the second interpreter has all of it so far
        self.driver: RunDriver | None = None  # once it has committed
        self.difference = ""  # the reason of a hold that is still to be written
        self._past: list[Turn] = []
        self._asked: list[Asked] = []
        self._begins = False  # it started beyond the record, which is still to be told

    def start(self, *, replaying: bool, patches: Sequence[str] = ()) -> None:
        """Run the code from its beginning."""
        if replaying:
            self._past.append(Turn(None, tuple(patches)))
        self._begins = not replaying
        super().start(replaying=replaying, patches=patches)

    def deliver(self, entry: Entry, *, replaying: bool, patches: Sequence[str] = (), value: Any = UNSET) -> None:
        """Feed one entry to the code; what is new is told with the transition that records it."""
        super().deliver(entry, replaying=replaying, patches=patches, value=value)
        if replaying and self.followed:
            self._past.append(Turn(entry, tuple(patches)))
            if len(self._past) >= PAST_MAX:
                self.tell_past()

    def take_issued(self) -> list[Command]:
        """Return the commands asked for since the last call."""
        issued = super().take_issued()
        if issued and self.followed:
            self._asked.extend(map(Asked.of, issued))
        return issued

    def close(self) -> None:
        """Drop the instance."""
        was_dead = self.loop.dead
        super().close()
        if not was_dead:
            self._scribe.closed(self)
            self.driver = None

    def tell_past(self) -> None:
        """Pass on what was replayed since the last call."""
        if self._past:
            past, self._past = self._past, []
            self._scribe.past(self, Past(self.key, past))

    def committed(self, entries: Sequence[Entry], *, parked: bool) -> Committed:
        """Return what to tell of a transition with these entries."""
        asked, self._asked = self._asked, []
        begins, self._begins = self._begins, False
        return Committed(self.key, _turns(entries, begins=begins), asked, outcome_word(self), parked)


def _turns(entries: Sequence[Entry], *, begins: bool) -> list[Turn]:
    """Return the activations that new entries record: each with the patches behind it."""
    turns = [Turn(None)] if begins else []
    for entry in entries:
        if entry.kind == Kind.PATCH:
            last = turns.pop()
            turns.append(last._replace(patches=(*last.patches, entry.name)))
        else:
            turns.append(Turn(entry))
    return turns
