"""One run in memory: delivers what arrives, turns it into one transition at a time, and begins work once that is durable."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Sequence

from romulus.authoring.logger import release
from romulus.core.commands import Command
from romulus.core.errors import ActivationTimeout
from romulus.core.instance import Instance
from romulus.core.loop import AT_REST
from romulus.core.machine import GUARDS_CANCEL, TERMINAL, Change, RunStatus
from romulus.core.operations import OperationState
from romulus.core.record import AttemptRow, Entry, HoldKind, Kind, Message, Record, Run
from romulus.core.seeds import Seeds
from romulus.core.transition import NewChild, Transition, Verdict
from romulus.store.contract import INBOX_MAX, BatchRejected

from . import conclude, deliveries, holding
from .draft import Draft
from .engine import CancelIn, Delivery, DueNow, Engine, EventIn, MessageIn, Outcome, Work
from .operations.arming import Tracked


class RunDriver:
    """The only writer of its run's record while the claim lasts.

    One transition is in flight at a time. What arrives meanwhile queues; when the transition is durable the queue is
    delivered, each item to quiescence, and makes the next one. Only then does anything armed by it begin.
    """

    # fmt: off
    __slots__ = (
        "_later", "_patches", "armed", "aside", "bytes", "cancel_delivered", "cancel_name", "cancel_seen", "children", "digest", "dues",
        "engine", "gone", "grace_due", "in_flight", "instance", "looks_again", "messages", "more", "operates", "operations", "parent",
        "pool_fences", "pooled", "pools", "queue", "queued", "reservations", "reserved", "rows", "run", "sealed", "starting", "taken_up",
        "timeout", "timer", "told", "unpooled", "unsettled", "unstarted", "unsure", "waiting_slot", "waits", "warned",
    )
    # fmt: on

    def __init__(self, engine: Engine, record: Record, instance: Instance) -> None:
        self.engine = engine
        self.run: Run = record.run
        self.instance = instance
        self.timeout = record.generation.timeout  # µs the run may take
        self.digest = engine.registry.digests[record.run.workflow, record.run.version]
        self.queue: deque[Delivery] = deque()  # arrived, not delivered yet
        self.aside: Sequence[Delivery] = ()  # arrived too, and not part of the turn under way
        self.queued: deque[Command] = deque()  # steps waiting for a slot
        self.armed: dict[int, Work] = {}  # by seq
        self.rows: dict[int, AttemptRow] = {}  # by seq: commands that failed or were lost before
        self.reservations: deque[Callable[[], object]] = deque()  # transactional steps waiting for the in-flight slot
        self.waits: dict[int, Command] = {}  # by seq: open in the record, or in the draft
        self.unstarted: dict[int, NewChild] = {}  # by seq: asked for, not in a transition yet
        self.unpooled: dict[int, Command] = {}  # by seq: to be queued in their pools, not in a transition yet
        self.sealed: dict[int, bytes] = {}  # by seq: their arguments
        self.pooled: dict[int, int] = {}  # by seq: in a pool, with the number of the attempt there
        self.pool_fences: dict[int, int] = {}  # by seq: of the attempt before
        self.pools = record.pooled  # the generation has had attempts in pools
        self.children: set[int] = set()  # seqs: started, their outcome not recorded yet
        self.told: set[int] = set()  # seqs of children whose outcome was replayed: one that lives, a person has retried
        self.messages: set[int] = set()  # keys read in this claim: none is delivered twice
        self.more = False  # the inbox may hold more than was read
        self.parent = record.parent  # the generation has started children
        self.operations: dict[int, Tracked] = {}  # by seq: the code awaits them
        self.operates = record.operates  # the generation has recorded operations
        self.unsettled = record.unsettled  # one may have been sent, as of when it was taken up
        self.unsure = record.doubt  # operations that it comes to may have been sent before a restore
        instance.unsent = self._unsent
        self.dues: list[tuple[int, int]] = []  # heap of (store µs, seq): timers, deadlines, back-offs; stale ones are skipped
        self.in_flight: Draft | None = None
        self.cancel_seen = record.run.cancel_seq
        self.cancel_delivered = False
        self.cancel_name = ""  # "timeout" where the run's own deadline cancelled it
        self.grace_due = 0  # store µs: when its clean-up has lasted too long
        self.reserved = 0  # slots held for this run but not used yet
        self.waiting_slot = False
        self.looks_again = False  # a turn is planned for what is queued
        self.starting = False  # attempts are being begun: their outcomes wait for the last
        self.gone = False
        self.bytes = len(record.generation.input)  # of values the code may hold
        self.taken_up = False  # its code is in line with its record: turns may be taken
        self.warned = False
        self.timer: object = None  # host handle for the earliest due time
        self._later: Entry | None = None
        self._patches: list[str] = []

    # ---- taking the run up -------------------------------------------------------------------

    @classmethod
    def of(cls, engine: Engine, record: Record) -> RunDriver:
        """Return a driver with a fresh instance of the record's generation; nothing has run yet.

        Raises:
            UnknownWorkflow, Undecodable.
        """
        run, generation = record.run, record.generation
        spec = engine.registry.workflow(run.workflow, run.version)
        arguments = engine.registry.vault.open(generation.input, f"arguments of run {run.id!r}")
        info = deliveries.run_info(record)
        started_at = generation.started_at or run.started_at or 0
        make = Instance if engine.observer is None else engine.observer.instance
        instance = make(spec, info, arguments, Seeds.parse(generation.seeds), started_at, engine.registry.vault)
        instance.attributes_stored = json.loads(run.attributes or "{}")
        return cls(engine, record, instance)

    def replay(self, entries: Sequence[Entry]) -> None:
        """Deliver recorded entries, in order; the last waits for the next call, since what was patched after it is recorded behind it."""
        self.engine.watchdog.enter(self.instance, self._hung)
        try:
            for entry in entries:
                if entry.kind == Kind.PATCH:
                    self._patches.append(entry.name)
                else:
                    self._replay_one()
                    self._later = entry
                    self._note_recorded(entry)
        finally:
            self.engine.watchdog.leave()

    def replay_end(self, *, known: bool) -> None:
        """Deliver the last recorded entry. *known*: the code had run before, so that its first activation is a replay too."""
        self.engine.watchdog.enter(self.instance, self._hung)
        try:
            if self._later is None and not self._patches:
                self.instance.start(replaying=known)
            else:
                self._replay_one()
        finally:
            self.engine.watchdog.leave()

    def _replay_one(self) -> None:
        patches, self._patches = tuple(self._patches), []
        if self._later is None:
            self.instance.start(replaying=True, patches=patches)
        else:
            self.instance.deliver(self._later, replaying=True, patches=patches)

    def _note_recorded(self, entry: Entry) -> None:
        self.bytes += len(entry.body)
        if entry.kind == Kind.CANCEL:
            self.cancel_delivered, self.cancel_name = True, entry.name
            self.cancelled_at(entry.at)
        elif entry.kind == Kind.OPERATION:
            self.settled_at(entry.at)
        elif entry.kind == Kind.CHILD:
            self.told.add(entry.seq)

    def cancelled_at(self, at: int) -> None:
        """Give the code from now on the time it has to clean up."""
        self.grace_due = at + self.engine.settings.cancel_grace
        heapq.heappush(self.dues, (self.grace_due, deliveries.GRACE))

    def settled_at(self, at: int) -> None:
        """An operation is settled: until now the code could not clean up, a cancellation waits for that."""
        if self.cancel_delivered:
            self.cancelled_at(at)

    # ---- arrivals ------------------------------------------------------------------------------

    def arrive(self, delivery: Delivery) -> None:
        """Queue a delivery and take a turn unless one is under way."""
        if self.gone:
            return
        self.queue.append(delivery)
        if self.in_flight is None and not self.starting:
            self.turn()

    def slot_granted(self) -> None:
        """Take note of one slot reserved for this run."""
        self.reserved += 1
        self.waiting_slot = False
        if self.gone:
            self.give_slots()
        elif self.in_flight is None:
            self.engine.host.call_soon(self.turn)

    def woken(self, record: Record) -> None:
        """Take up what the store holds for the run: matched waits, and cancel requests first."""
        if self.gone:
            return
        if record.run.cancel_seq > self.cancel_seen:
            self.cancel_seen = record.run.cancel_seq
            self.queue.appendleft(CancelIn(record.run.cancel_seq, "", record.run.cancel_reason))
        waiting = {d.seq for d in self.queue if isinstance(d, EventIn)}
        self.queue.extend(EventIn(w.seq, w.deposit) for w in record.waits if w.deposit is not None and w.seq not in waiting)
        self.read_inbox(record.inbox)
        if not self.starting:
            self.turn()

    def read_inbox(self, inbox: Sequence[Message]) -> None:
        """Queue the messages that were not read before."""
        fresh = [message for message in inbox if message.key not in self.messages]
        self.messages.update(message.key for message in fresh)
        self.queue.extend(MessageIn(message) for message in fresh)
        self.more = len(inbox) >= INBOX_MAX

    # ---- one turn ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Deliver what has queued, each item to quiescence, and submit the one transition that makes."""
        if self.gone or self.in_flight is not None or not self.taken_up:
            return
        draft = Draft(self.engine.next_transition_id())
        if self.reservations and not self.queue:
            self.in_flight = draft
            self.reservations.popleft()()
        else:
            self.first_turn(draft)

    def first_turn(self, draft: Draft) -> None:
        """Take a turn that begins with what *draft* has collected already."""
        self.taken_up = True
        transition = self._make(draft)
        if transition is not None:
            self.submit(draft, transition)
            return
        self._watch_dues()
        if self.queued and not self.waiting_slot and not self.looks_again:
            self.looks_again = True
            self.engine.host.call_later(self.engine.settings.lease // 4, self._look_again)

    def _look_again(self) -> None:
        """Arm what could not be: the lease was about to end, and nothing tells when it is renewed."""
        self.looks_again = False
        self.turn()

    def _make(self, draft: Draft) -> Transition | None:
        """Advance the code with what has queued, under the watchdog; a broken advance leaves the outcomes alone."""
        try:
            return self._watched(draft)
        except ActivationTimeout as error:  # landed when all was done, or on the way out
            return holding.outcome_alone(self, draft, error)

    def _watched(self, draft: Draft) -> Transition | None:
        self.engine.watchdog.enter(self.instance, lambda: holding.hung(self, draft))
        try:
            deliveries.deliver_all(self, draft)
            return conclude.conclude(self, draft)
        except holding.HELD as error:
            return holding.outcome_alone(self, draft, error)
        except Exception as error:  # noqa: BLE001  of the App's codec, or a defect: a run that nobody looks after again is worse than a held one
            return holding.unforeseen(self, draft, error)
        finally:
            self.engine.watchdog.leave()

    def advance_with(self, outcome: Outcome) -> tuple[Draft, Transition] | None:
        """Take a turn with a transactional step's outcome; its transition is in flight, for the step's own commit to write."""
        draft = Draft(self.engine.next_transition_id())
        arrived, cancels = self.queue, [each for each in self.queue if isinstance(each, CancelIn)]
        self.queue = deque[Delivery]([outcome, *cancels])  # the others wait: if this commit is undone they are not
        self.aside = [each for each in arrived if not isinstance(each, CancelIn)]
        transition = self._make(draft)
        self.queue.extend(self.aside)
        self.aside = ()
        if transition is None:
            return None
        self.in_flight = draft
        return draft, transition

    def undone(self) -> None:
        """The step's transaction was rolled back, or may have been: the record says, and the code is rebuilt from it."""
        if not self.gone:
            self.engine.owner.rebuild(self)

    def reserve(self, granted: Callable[[], object]) -> None:
        """Keep the in-flight slot for a transactional step, from before its transaction: *granted* is called when it has it.

        Taking it only at the body's end would deadlock where a transaction holds the store's only writer.
        """
        if self.gone:
            granted()
            return
        self.reservations.append(granted)
        self.turn()

    def unreserve(self) -> None:
        """Give the in-flight slot back without a transition."""
        if not self.gone:
            self.in_flight = None
            self.turn()

    def hold(self, kind: HoldKind, reason: str) -> None:
        """Hold the run for a person, with what is recorded so far."""
        if not self.gone and self.in_flight is None:
            draft = Draft(self.engine.next_transition_id())
            self.submit(draft, holding.held(self, draft, kind, reason))

    def give_back(self, excluded: str | None = None) -> None:
        """Free the run for others: what has not begun is un-armed, what still runs counts as lost for the next claim."""
        if not self.gone and self.in_flight is None:
            draft = Draft(self.engine.next_transition_id())
            self.submit(draft, conclude.freed(self, draft, excluded))

    def submit(self, draft: Draft, transition: Transition) -> None:
        """Hand a transition to the writer; its answer goes on from there."""
        self.in_flight = draft
        self.engine.committer.submit(transition, lambda verdict: self.answered(draft, transition, verdict))

    def answered(self, draft: Draft, transition: Transition, verdict: Verdict | BatchRejected) -> None:
        """Go on once the store has answered."""
        if self.gone:
            return
        self.in_flight = None
        if verdict is Verdict.APPLIED:
            self._applied(draft, transition)
        elif verdict is Verdict.REFUSED:
            self.engine.owner.rebuild(self, transition)
        elif transition.entries or transition.change is not Change.HOLD:
            self.submit(draft, holding.uncommittable(self, draft, transition, str(verdict)))
        else:
            self.engine.executor.log_stuck(self.run.id, str(verdict))
            self.engine.host.call_later(self.engine.settings.lease, self.engine.owner.rebuild, self)

    def _applied(self, draft: Draft, transition: Transition) -> None:
        """Do what the transition allows: it is durable now."""
        run = self.run
        run.revision += 1
        run.position, run.status, run.last_transition, run.digest = transition.position, transition.status, transition.id, transition.digest
        run.wake_at, run.armed = transition.wake_at, transition.armed
        if draft.attributes is not None:
            run.attributes = draft.attributes
        self.bytes += draft.bytes
        self._warn_of_history()
        notes = self.instance.take_notes()
        if notes:
            release(notes, run.id)
        if self.engine.observer is not None:
            self.engine.observer.applied(self, transition)
        if draft.children or draft.attaches or draft.closing or draft.pools or draft.for_pools:
            self.engine.store.hub.poke()
        if any(mark.due is not None for mark in transition.marks) or (self.unsure is not None and transition.intents):
            self.engine.operations.settler.poke()
        if transition.change is not Change.ADVANCE:
            self._over(transition)
            return
        self.queue.extend(MessageIn(message) for message in draft.answers)
        if self.more and not self.queue:
            self.more = False
            self.engine.owner.reread(self)
        if self.in_flight is not None:  # the observer holds the run
            return
        if not self.engine.owner.stopping:
            self._begin(draft.arms)
        self.turn()
        if self.engine.owner.stopping and not self.any_begun():
            self.give_back()

    def any_begun(self) -> bool:
        """Return whether the body of an armed attempt has started."""
        return any(work.begun for work in self.armed.values())

    def _warn_of_history(self) -> None:
        """Tell the operator once, well before the limit."""
        if not self.warned and self.run.position >= self.engine.settings.history_warn:
            self.warned = True
            self.engine.executor.log_long(self.run.id, self.run.position, self.engine.settings.history_max)

    def _begin(self, arms: Sequence[Work]) -> None:
        """Begin the attempts that the transition armed; their outcomes are taken together afterwards."""
        self.starting = True
        try:
            for work in arms:
                if not work.withdrawn:
                    self.engine.executor.begin(work)
        finally:
            self.starting = False

    def _over(self, transition: Transition) -> None:
        """The claim ended with the transition: leave memory, or stay cached while parked."""
        engine, run = self.engine, self.run
        engine.operations.salvage(self, None)
        self.leave_work()
        self.gone = True
        if run.status is not RunStatus.WAITING:
            self.instance.close()
        if run.status is RunStatus.HELD and transition.hold is not None:
            engine.executor.log_held(run.id, transition.hold[1])
        if run.status is RunStatus.FAILED and transition.failure is not None:
            engine.executor.log_failed(run.id, transition.failure)
        if run.status in TERMINAL or run.status is RunStatus.HELD:
            engine.store.hub.changed(run.namespace, run.id)
        if transition.change in GUARDS_CANCEL and transition.change is not Change.PARK and (transition.child or transition.parent):
            engine.store.hub.poke()
        engine.owner.let_go(self)

    # ---- ends ----------------------------------------------------------------------------------

    def drop(self) -> None:
        """Forget the run: nothing more is done in its name."""
        if not self.gone:
            self.gone = True
            self.leave_work()
            self.instance.close()

    def rest(self) -> None:
        """Take as little memory as can be while the run is parked: its row, and what arrives meanwhile, is in the record."""
        self.queue = self.queued = self.reservations = AT_REST
        self.messages.clear()  # what was taken is deleted
        del self.run
        self.instance.rest()

    def resume(self, run: Run) -> None:
        """Go on under a new claim."""
        self.run, self.gone = run, False
        self.queue, self.queued, self.reservations = deque(), deque(), deque()

    def leave_work(self) -> None:
        """Stop the attempts that run, give slots back, cancel the timer."""
        for work in tuple(self.armed.values()):
            self.engine.executor.withdraw(work)
        self.armed.clear()
        while self.reservations:
            self.reservations.popleft()()
        if self.waiting_slot:
            self.engine.slots.leave(self)
            self.waiting_slot = False
        self.give_slots()
        self._stop_timer()

    def give_slots(self) -> None:
        """Give back slots that were reserved for this run and not used."""
        while self.reserved:
            self.reserved -= 1
            self.engine.slots.give()

    def _unsent(self, seq: int) -> bool:
        """Return whether nothing of an operation was sent."""
        tracked = self.operations.get(seq)
        return tracked is not None and tracked.state is OperationState.QUEUED

    # ---- due times -------------------------------------------------------------------------------

    def next_due(self) -> int | None:
        """Return the earliest due time of a timer, deadline or back-off that is still awaited."""
        while self.dues:
            due, seq = self.dues[0]
            if deliveries.still_due(self, due, seq):
                return due
            heapq.heappop(self.dues)
        return None

    def code_is_due(self) -> bool:
        """Return whether a timer, deadline or back-off of the code is still awaited."""
        return any(seq >= 0 and deliveries.still_due(self, due, seq) for due, seq in self.dues)

    def _watch_dues(self) -> None:
        """Have the earliest due time delivered when it comes.

        The store's clock says when that is: the loop's stands still while the machine sleeps, so it is looked at anew every poll.
        """
        due = self.next_due()
        self._stop_timer()
        if due is not None:
            wait = due - self.engine.store.estimated_now()
            self.timer = self.engine.host.call_later(min(wait, self.engine.settings.poll), self._due)

    def _due(self) -> None:
        self.timer = None
        if self.gone or self.in_flight is not None:
            return
        if self.take_dues():
            self.turn()
        else:
            self._watch_dues()

    def take_dues(self) -> bool:
        """Queue everything that is due by the store's clock; return whether anything was."""
        now, found = self.engine.store.estimated_now(), False
        while (due := self.next_due()) is not None and due <= now:
            _, seq = heapq.heappop(self.dues)
            self.queue.append(DueNow(due, seq))
            found = True
        return found

    def due_at(self, due: int, seq: int) -> None:
        """Note the due time of a command."""
        heapq.heappush(self.dues, (due, seq))

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()  # type: ignore[attr-defined]
            self.timer = None

    def _hung(self) -> None:
        """The watchdog's throw did not land while the record was replayed: nothing new to save."""
        holding.hung(self, Draft(self.engine.next_transition_id()))
