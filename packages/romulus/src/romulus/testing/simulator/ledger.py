"""What step bodies really did, kept outside the database: each attempt begun and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from romulus.authoring.current import Attempt, current_attempt


class Boom(Exception):
    """What a step of a generated program raises."""


@dataclass(slots=True)
class Effect:
    """One body that was begun."""

    run_id: str
    generation: int
    seq: int
    number: int
    fence: int
    step: str
    label: str
    at: int  # virtual µs
    process: str
    failed_before: int  # bodies of the same command that raised or timed out before
    end: str = ""  # returned | raised | cancelled; "": it never got that far

    def outcome(self, fails: int) -> str:
        """Return the label, or raise where the program wants this try to fail."""
        if self.failed_before < fails:
            raise Boom(self.label)
        return self.label


@dataclass(slots=True)
class Ledger:
    """The effects of one seed, in the order they happened."""

    now: Callable[[], int]
    process: Callable[[], str]  # whose code runs; raises where that process is dead
    variant: Callable[[], str]  # the code that the running process has
    begun: Callable[[Effect], None]
    effects: list[Effect] = field(default_factory=list[Effect])
    hangs: set[str] = field(default_factory=set[str])  # labels of nodes that hung once
    last_hang: dict[tuple[str, int, str], str] = field(default_factory=dict[tuple[str, int, str], str])  # (run ID, generation, process)
    closed: bool = False

    def begin(self, attempt: Attempt, label: str) -> Effect:
        """Note that a body begins."""
        process = self.process()
        command = (attempt.run_id, attempt.run.generation, attempt.seq)
        earlier = [e for e in self.effects if (e.run_id, e.generation, e.seq) == command]
        failed = sum(1 for e in earlier if e.end in ("raised", "cancelled"))
        effect = Effect(*command, attempt.number, attempt.fence, attempt.step, label, self.now(), process, failed)
        self.effects.append(effect)
        self.begun(effect)
        return effect

    def hang(self, run_id: str, generation: int, label: str) -> bool:
        """Return whether the node is to hang: the first time only."""
        if label in self.hangs:
            return False
        self.hangs.add(label)
        self.last_hang[run_id, generation, self.process()] = label
        return True

    def finish(self, effect: Effect, end: str) -> None:
        """Note how a body ended, unless its process died with it."""
        if not self.closed:
            self.process()
            effect.end = end


_active: list[Ledger] = []


def active() -> Ledger:
    """Return the ledger of the seed in progress."""
    return _active[-1]


@contextmanager
def activated(ledger: Ledger) -> Generator[None, None, None]:
    """Make *ledger* the one that bodies write to."""
    _active.append(ledger)
    try:
        yield
    finally:
        ledger.closed = True
        _active.remove(ledger)


@contextmanager
def trying(label: str) -> Generator[Effect, None, None]:
    """Note an attempt of the step that calls this."""
    ledger = active()
    effect = ledger.begin(current_attempt(), label)
    try:
        yield effect
    except asyncio.CancelledError:
        ledger.finish(effect, "cancelled")
        raise
    except Exception:
        ledger.finish(effect, "raised")
        raise
    else:
        ledger.finish(effect, "returned")
