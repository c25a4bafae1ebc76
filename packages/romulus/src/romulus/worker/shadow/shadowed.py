"""One run in the second interpreter: follows the record, compares what the code asks for, and begins again at intervals.

Following shows what differs between two interpreters; beginning again shows what differs between two passes in one, as where the code
keeps something in a global. It begins again when the run ends, each time the journal has doubled, and when the run parks while its journal
is short (a run that parks at every entry would else cost the square of its length): at most 4 deliveries for each entry, and a constant.
"""

from __future__ import annotations

from romulus.authoring.registry import Registry
from romulus.core.errors import Mismatch, Undecodable
from romulus.core.instance import Instance
from romulus.core.seeds import Seeds

from . import findings
from .words import Asked, Committed, Past, Turn, Watch, outcome_word

PARK_MAX = 64  # entries of a journal that is replayed at each park


class Shadowed:
    """A generation as the second interpreter replays it."""

    def __init__(self, watch: Watch, registry: Registry) -> None:
        self._watch, self._registry = watch, registry
        self._told: list[Past | Committed] = []
        self._instance = self._fresh()
        self._length = 0  # of the journal
        self._checked = 0  # length when it last began again
        self._differs = False
        self.replayed = 0  # entries delivered, in all passes

    @property
    def run_id(self) -> str:
        """Return the run's ID."""
        return self._watch.info.id

    def tell(self, told: Past | Committed) -> str | None:
        """Follow the record; return in words what differs, once."""
        if self._differs:
            return None
        self._told.append(told)
        self._length += sum(turn.entry is not None for turn in told.turns)
        found = self._follow(told)
        if found is None and self._again_due(told):
            found = self._again()
        if found is not None:
            self._differs = True
            self.close()
        return found

    def close(self) -> None:
        """Forget the run."""
        self._instance.close()
        self._told.clear()

    def _again_due(self, told: Past | Committed) -> bool:
        if isinstance(told, Past):
            return False
        grown = self._length > self._checked
        short = told.parked and self._length <= PARK_MAX
        return bool(told.outcome) or (grown and (short or self._length >= 2 * self._checked))

    def _again(self) -> str | None:
        """Replay everything from the start on a fresh instance, and go on with that one."""
        self._checked = self._length
        self._instance.close()
        self._instance = self._fresh()
        for told in self._told:
            found = self._follow(told)
            if found is not None:
                return found
        return None

    def _follow(self, told: Past | Committed) -> str | None:
        try:
            if isinstance(told, Past):
                self._replay(told)
                return None
            return self._compare(told)
        except Mismatch as error:
            return findings.mismatch(error)
        except Undecodable as error:
            return findings.undecodable(self._instance.position, error)

    def _replay(self, past: Past) -> None:
        for turn in past.turns:
            self._move(turn)

    def _compare(self, committed: Committed) -> str | None:
        """Run what was committed; the worker took its commands after each turn, so they are taken after each turn here."""
        asked = self._take()
        for turn in committed.turns:
            self._move(turn)
            asked += self._take()
        found = findings.commands(committed.asked, asked, self._instance.position)
        return found or findings.outcome(committed.outcome, outcome_word(self._instance), self._instance.position)

    def _move(self, turn: Turn) -> None:
        if turn.entry is None:
            self._instance.start(replaying=True, patches=turn.patches)
        else:
            self._instance.deliver(turn.entry, replaying=True, patches=turn.patches)
            self.replayed += 1

    def _take(self) -> list[tuple[int, Asked]]:
        """Return what the code asked for since the last call, each with the position it had come to."""
        self._instance.take_withdrawn()
        return [(self._instance.position, Asked.of(command)) for command in self._instance.take_issued()]

    def _fresh(self) -> Instance:
        watch = self._watch
        spec = self._registry.workflow(watch.info.workflow, watch.info.version)
        return Instance(spec, watch.info, watch.arguments, Seeds.parse(watch.seeds), watch.started_at, self._registry.vault)
