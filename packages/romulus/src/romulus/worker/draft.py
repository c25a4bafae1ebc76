"""A transition in the making: what one turn of a run has collected so far."""

from __future__ import annotations

from typing import Literal

from romulus.core.machine import GUARDS_CANCEL, Change, after
from romulus.core.operations import NewIntent, OperationEvent, OperationMark, OperationState
from romulus.core.operations import after as to
from romulus.core.pools import DEFAULT_POOL, NewPoolAttempt
from romulus.core.record import AttemptRow, Entry, HoldKind, Message, Run
from romulus.core.transition import Attach, CloseChild, CloseWait, Closing, NewChild, NewGeneration, NewWait, Transition

from .engine import Work


def still_cancelled(run: Run, change: Change) -> tuple[Literal[""], str] | None:
    """Return what a run that was cancelled in a hold keeps of it when its claim ends and it goes on later."""
    return ("", run.hold_reason) if run.hold_reason and change in (Change.FREE, Change.PARK) else None


class Draft:
    """Collects entries, arms, waits and attempts; `seal` makes the transition of them."""

    __slots__ = (
        "abandoned", "answers", "arms", "attaches", "attempts", "attributes", "bytes", "changed", "children", "closes", "closing",
        "entries", "forgotten", "forsaken", "id", "intents", "marks", "not_before", "opens", "poison", "pools", "progressed",
        "recalled", "returned", "settled", "taken", "withdrawn",
    )  # fmt: skip

    def __init__(self, transition_id: int) -> None:
        self.id = transition_id
        self.entries: list[Entry] = []
        self.bytes = 0
        self.arms: list[Work] = []
        self.attempts: dict[int, AttemptRow] = {}
        self.settled: list[int] = []
        self.forgotten: list[int] = []  # commands that the code no longer awaits: nothing of their attempts is kept
        self.opens: dict[int, NewWait] = {}
        self.closes: list[CloseWait] = []
        self.children: list[NewChild] = []
        self.attaches: list[Attach] = []
        self.closing: list[CloseChild] = []
        self.taken: list[int] = []  # inbox messages
        self.answers: list[Message] = []  # delivered once the transition is durable
        self.attributes: str | None = None
        self.intents: dict[int, NewIntent] = {}
        self.marks: list[OperationMark] = []  # what has become of sends
        self.withdrawn: list[int] = []  # queued operations that the code no longer awaits
        self.forsaken: list[int] = []  # operations whose outcome is in an entry
        self.abandoned: list[int] = []  # operations that the code no longer awaits
        self.pools: list[NewPoolAttempt] = []
        self.returned: list[int] = []  # seqs whose attempts in pools have ended: their messages are taken
        self.recalled: list[int] = []  # seqs whose attempts in pools the code no longer awaits
        self.poison = ""  # why the run must be held for what was lost
        self.not_before: int | None = None
        self.progressed = False
        self.changed = False  # something without an entry changed: armed, attempts, waits

    def record(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
        self.bytes += len(entry.body) + 64
        self.changed = self.progressed = True

    def due(self, instant: int) -> None:
        """Note the due time of something fired."""
        if self.not_before is None or instant > self.not_before:
            self.not_before = instant

    def remember(self, row: AttemptRow) -> None:
        """Store what a failed or lost attempt leaves."""
        self.attempts[row.seq] = row
        self.changed = True

    def settle(self, seq: int) -> None:
        """Delete what failed or lost attempts of a command left."""
        self.attempts.pop(seq, None)
        self.settled.append(seq)
        self.changed = True

    def forget(self, seq: int) -> None:
        """Delete what attempts left of a command that the code no longer awaits."""
        self.forgotten.append(seq)
        self.changed = True

    def open(self, wait: NewWait) -> None:
        """Open a wait."""
        self.opens[wait.seq] = wait
        self.changed = True

    def close(self, closing: CloseWait) -> None:
        """Close a wait; one opened by this very draft is forgotten instead."""
        if self.opens.pop(closing.seq, None) is None:
            self.closes.append(closing)
        self.changed = True

    def start(self, child: NewChild) -> NewChild:
        """Create a child."""
        self.children.append(child)
        self.changed = True
        return child

    def attach(self, attach: Attach) -> None:
        """Take a child over from an earlier generation."""
        self.attaches.append(attach)
        self.changed = True

    def ask(self, closing: CloseChild) -> None:
        """Have a child asked to end."""
        self.closing.append(closing)
        self.changed = True

    def take(self, message: int) -> None:
        """Take a message off the inbox."""
        self.taken.append(message)
        self.changed = True

    def intend(self, intent: NewIntent) -> None:
        """Record an operation, or arm it."""
        self.intents[intent.seq] = intent
        self.changed = True

    @property
    def for_pools(self) -> bool:
        """Return whether it records operations that workers of pools send."""
        return any(intent.pool != DEFAULT_POOL for intent in self.intents.values())

    def mark(self, mark: OperationMark) -> None:
        """Say what an operation becomes."""
        self.marks.append(mark)
        self.changed = True

    def withdraw(self, seq: int) -> None:
        """Give up an operation that is queued, or is queued again by this very draft."""
        self.withdrawn.append(seq)
        self.changed = True

    def queue_in_pool(self, attempt: NewPoolAttempt) -> None:
        """Queue an attempt in its pool."""
        self.pools.append(attempt)
        self.changed = True

    def end_in_pool(self, seq: int) -> None:
        """Delete an attempt whose end is recorded with this transition."""
        self.returned.append(seq)
        self.changed = True

    def recall(self, seq: int) -> None:
        """Delete an attempt that nobody awaits."""
        self.recalled.append(seq)
        self.changed = True

    def outcomes_only(self) -> None:
        """Forget what the code asked for: a replay asks for it again."""
        self.forgotten.clear()
        self.opens.clear()
        self.closes[:] = [closing for closing in self.closes if closing.how is not Closing.WITHDRAWN]
        self.children.clear()
        self.attaches.clear()
        self.closing.clear()
        self.answers.clear()
        self.intents.clear()
        self.withdrawn.clear()
        self.abandoned.clear()
        self.pools.clear()
        self.recalled.clear()
        self.attributes = None

    def seal(
        self,
        run: Run,
        owner: str,
        change: Change,
        armed: str,
        *,
        cancel_seq: int,
        digest: str,
        wake_at: int | None = None,
        excluded: str | None = None,
        hold: tuple[HoldKind | Literal[""], str] | None = None,
        result: bytes | None = None,
        failure: bytes | None = None,
        ended_by: int | None = None,
        begins: NewGeneration | None = None,
        parent: bool = False,
        operates: bool = False,
        pooled: bool = False,
    ) -> Transition:
        """Return the transition that *change* and everything collected make of *run*."""
        return Transition(
            self.id, run.key, run.generation_key, run.id, owner, run.fence, run.revision, change,
            after(run.status, change, run.id), run.position + len(self.entries), armed, self.entries,
            cancel_seq if change in GUARDS_CANCEL else None, self.not_before, self.progressed, wake_at, digest, excluded,
            self._attempts(), self.settled + self.forgotten, tuple(self.opens.values()), self.closes,
            hold or still_cancelled(run, change), result, failure, ended_by, begins, self.children, self.attaches, self.closing, self.taken,
            self.attributes,
            child=run.depth > 0, parent=parent or operates or pooled, intents=tuple(self.intents.values()), marks=self._marks(),
            forsaken=self.forsaken + self.abandoned, operates=operates,
            pools=self.pools, recalled=self.returned + self.recalled, pooled=pooled,
        )  # fmt: skip

    def _marks(self) -> list[OperationMark]:
        """Return one mark of each operation: of one that was un-armed and is given up, from where the record has it to its end."""
        if not self.withdrawn:
            return self.marks
        before = {mark.seq: mark.before for mark in self.marks}
        given_up = [
            OperationMark(seq, before.get(seq, OperationState.QUEUED), to(OperationState.QUEUED, OperationEvent.WITHDRAW), awaited=False)
            for seq in self.withdrawn
        ]
        return [mark for mark in self.marks if mark.seq not in self.withdrawn] + given_up

    def _attempts(self) -> tuple[AttemptRow, ...]:
        return tuple(row for row in self.attempts.values() if row.seq not in self.forgotten)
