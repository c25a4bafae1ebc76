"""A handle on one run: wait for it, look at it, ask something of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic, TypeVar

from romulus.authoring.checks import run_id_chars_max
from romulus.core import requests
from romulus.core.commands import WorkflowSpec
from romulus.core.duration import Duration, micros
from romulus.core.errors import IllegalTransition, OperationConflict, RunCancelled, RunConflict, RunFailed, RunHeld, RunTerminated
from romulus.core.machine import TERMINAL, Change, RunStatus, after
from romulus.core.record import Entry, Generation, Kind, Record
from romulus.core.text import check_text
from romulus.core.transition import Created
from romulus.store.contract import Evidence

from . import sending
from .link import Link
from .records import CancelReply, EventReceipt, EvidenceRecord, JournalEntry, RunDescription
from .starting import SEED_BITS, rekeyed
from .views import entry_view, evidence_view, record_view
from .waiting import ended, snapshots

T = TypeVar("T")
REASON_MAX_CHARS = 2_000
FORKS_MAX = 10_000  # forks of one run that are looked through for a free ID


class AsyncHandle(Generic[T]):
    """One run, by its ID. Making one reads nothing: the methods do."""

    def __init__(self, link: Link, run_id: str, spec: WorkflowSpec | None = None) -> None:
        self.id: str = check_text(run_id, "run ID", run_id_chars_max)
        self._link, self._spec = link, spec

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.id!r}>"

    async def result(self, timeout: Duration | None = None, *, raise_on_hold: bool = False) -> T:
        """Wait for the run's end and return what it returned.

        Args:
            timeout: how long to wait; the run itself goes on.
            raise_on_hold: do not wait for a person where the run is held.

        Raises:
            RunFailed: with what the code raised as its cause. RunCancelled, RunTerminated: it ended so.
            RunHeld: it is held, with *raise_on_hold*. RunNotFound: there is no such run.
            TimeoutError: it has not ended in *timeout*.
        """
        limit = None if timeout is None else micros(timeout, "timeout")
        record = await ended(self._link, self.id, limit, raise_on_hold)
        value: T = self._outcome(record)
        return value

    async def describe(self) -> RunDescription:
        """Return where the run stands.

        Raises:
            RunNotFound
        """
        record = await self._link.record(self.id)
        if record.parent:
            record.children = await (await self._link.store()).children(record.generation.key)
        if record.operates:
            record.operations = await (await self._link.store()).operations_of(record.generation.key)
        evidence: Sequence[Evidence] = ()
        if record.pooled:
            record.pool = await (await self._link.store()).pooled(record.generation.key)
            if any(attempt.unread for attempt in record.pool):
                evidence = await (await self._link.store()).evidence(record.run.key)
        return record_view(record, await self._link.served(), self._link.reader, evidence)

    async def history(self) -> list[JournalEntry]:
        """Return the recorded outcomes of the run's current generation, in order.

        Raises:
            RunNotFound
        """
        record = await self._link.record(self.id)
        return [entry_view(entry, self._link.reader) async for entry in self._link.entries(record.generation.key)]

    async def evidence(self) -> list[EvidenceRecord]:
        """Return the late and contradicting reports that were refused for this run and kept, oldest first.

        Raises:
            RunNotFound
        """
        record = await self._link.record(self.id)
        return [evidence_view(item) for item in await (await self._link.store()).evidence(record.run.key)]

    async def watch(self) -> AsyncIterator[RunDescription]:
        """Yield the run's description now and after each change seen, until it has ended. Quick changes may merge.

        Raises:
            RunNotFound
        """
        async for record in snapshots(self._link, self.id):
            yield record_view(record, await self._link.served(), self._link.reader)

    async def cancel(self, reason: str = "") -> CancelReply:
        """Ask the run to end: its code gets `asyncio.CancelledError` and may clean up.

        Return "accepted": it will end cancelled (or failed, if its clean-up raises); "already_terminal": it had ended. A held run gets one
        chance to clean up, and ends cancelled where it would be held again. It waits for a person first while an operation that it awaits
        may have been applied, and where it is held for the first time while it cleans up; `describe().hold_reason` says so.

        Raises:
            RunNotFound
        """
        check_text(reason, "reason", REASON_MAX_CHARS)
        before, _ = await self._link.change(self.id, lambda run, _, now: requests.request_cancel(run, reason, now))
        return "already_terminal" if before.status in TERMINAL else "accepted"

    async def terminate(self, reason: str = "") -> None:
        """Stop the run at once; its clean-up code does not run. Nothing happens where it was terminated before.

        Raises:
            RunNotFound; IllegalTransition: it ended in another way.
        """
        check_text(reason, "reason", REASON_MAX_CHARS)
        await self._link.change(self.id, lambda run, _, now: requests.terminate(run, reason, now))

    async def send_event(self, name: str, payload: object = None, *, event_id: str | None = None) -> EventReceipt:
        """Send an event to the waits of this run that name no correlation ID of their own.

        Raises:
            EventConflict: the event ID was used with another body. SerializationError: the payload is no JSON.
        """
        return await sending.send_event(self._link, name, payload, self.id, event_id)

    async def retry(self) -> None:
        """Begin a failed, cancelled or terminated run again, keeping what was recorded before the outcome that ended it.

        Raises:
            RunNotFound; IllegalTransition: the run is live or succeeded, or a child that it would go on with was cancelled and still ends.
            OperationConflict: an operation of it may have been sent and is not settled: the new pass could send it anew.
        """
        record = await self._link.record(self.id)
        after(record.run.status, Change.RETRY, self.id)  # one that has ended asks for no more operations
        await self._check_settled(record)
        ended_by = record.generation.ended_by
        entries = [entry async for entry in self._link.entries(record.generation.key)]
        prefix = requests.retry_prefix(record.run.status, ended_by, entries, record.run.position)
        await self._check_children(record, entries, prefix)
        seed = await self._seed()
        await self._link.change(self.id, lambda run, _, now: requests.retry(run, record.generation, prefix, seed, now))

    async def release(self) -> None:
        """Let a held run go on.

        Raises:
            RunNotFound; IllegalTransition: the run is not held.
        """
        await self._link.change(self.id, lambda run, _, now: requests.release(run, now))

    async def fork(self, position: int, version: str | None = None) -> AsyncHandle[T]:
        """Begin a new run `<id>~<n>` with this one's entries before *position*; this one is left as it is.

        Raises:
            RunNotFound; ValueError: there is no such position, or the run was cancelled before it, or had a child under way there.
            OperationConflict: an operation asked for up to there may have been sent and is not settled: the fork would send it anew.
        """
        record = await self._link.record(self.id)
        await self._check_fork(record, position)
        for number in range(1, FORKS_MAX + 1):
            fork: AsyncHandle[T] = AsyncHandle(self._link, f"{self.id}~{number}", self._spec)  # refuses an ID that no run can have
            if await self._start_fork(record, position, fork.id, version):
                return fork
        raise RunConflict(f"{self.id}~{FORKS_MAX}", "and so do all forks before it")

    async def _start_fork(self, record: Record, position: int, fork_id: str, version: str | None) -> bool:
        fork = requests.fork_of(record.run, record.generation, position, fork_id, version, await self._seed())
        if position == 0:
            fork = rekeyed(fork, self._link.vault)
        (answer,) = await (await self._link.store()).start([fork])
        return isinstance(answer, Created)

    async def _check_fork(self, record: Record, position: int) -> None:
        if not 0 <= position <= record.run.position:
            raise ValueError(f"position is {position}; run {self.id!r} can be forked at 0 to {record.run.position}")
        cancel = await self._first_cancel(record.generation, position)
        if cancel is not None:
            raise ValueError(f"run {self.id!r} was cancelled at position {cancel.position}; fork it there or before, not at {position}")
        started = await self._child_under_way(record.generation, position)
        if started is not None:
            raise ValueError(
                f"at position {position} the child started at {started.position} had not ended, and a fork has children of its own; "
                f"fork it at {started.position} or before"
            )

        await self._check_operations(record, position)

    async def _check_operations(self, record: Record, position: int) -> None:
        """Refuse a fork that would send again, under another ID, what may have been applied already.

        Raises:
            OperationConflict: naming the operation.
        """
        for row in await (await self._link.store()).open_operations(record.generation.key):
            if row.position <= position:
                raise OperationConflict(
                    row.id,
                    f"of {row.name!r}, asked for at position {row.position}, is {row.state}: a fork at {position} would send it again "
                    f"under another ID; settle it first, or fork {self.id!r} before {row.position}",
                )

    async def _check_settled(self, record: Record) -> None:
        """Refuse a retry whose code could ask again for what may have been applied already.

        Raises:
            OperationConflict: naming the operation.
        """
        for row in await (await self._link.store()).open_operations(record.generation.key):
            raise OperationConflict(
                row.id,
                f"of {row.name!r} is {row.state}: a retry of run {self.id!r} could send it again under another ID; wait until it is "
                f"settled, or look it up at the provider and resolve it (`romulus operations resolve WORD {row.id}`), then retry",
            )

    async def _check_children(self, record: Record, entries: Sequence[Entry], prefix: requests.Prefix) -> None:
        """Refuse a retry that would only be told of its children's cancel. After the run's end none is asked that is not now.

        Raises:
            IllegalTransition: naming one.
        """
        children = await (await self._link.store()).children(record.generation.key)
        ending = requests.still_ending(children, entries, prefix.below)
        if ending:
            which = f"child {ending[0]!r} has" if len(ending) == 1 else f"{len(ending):,} children, {ending[0]!r} among them, have"
            raise IllegalTransition(record.run.status, f"be retried until its {which} ended: cancelled with it, and cleaning up", self.id)

    async def _first_cancel(self, generation: Generation, below: int) -> Entry | None:
        async for entry in self._link.entries(generation.key):
            if entry.position >= below:
                return None
            if entry.kind == Kind.CANCEL:
                return entry
        return None

    async def _child_under_way(self, generation: Generation, below: int) -> Entry | None:
        """Return the first start of a child, for a handle, whose outcome is not recorded before *below*."""
        started: dict[int, Entry] = {}
        async for entry in self._link.entries(generation.key):
            if entry.position >= below:
                break
            if entry.kind == Kind.STARTED and not entry.failed:
                started[entry.seq] = entry
            elif entry.kind == Kind.CHILD:
                started.pop(entry.seq, None)
        return next(iter(started.values()), None)

    async def _seed(self) -> bytes:
        return (await self._link.random_bits(SEED_BITS)).to_bytes(SEED_BITS // 8, "big")

    def _outcome(self, record: Record) -> Any:
        run, generation = record.run, record.generation
        match run.status:
            case RunStatus.SUCCEEDED:
                return self._link.reader.result(generation, self._spec)
            case RunStatus.FAILED:
                raise self._failed(generation)
            case RunStatus.CANCELLED:
                raise RunCancelled(self.id, run.cancel_reason)
            case RunStatus.TERMINATED:
                raise RunTerminated(self.id, run.cancel_reason)
            case RunStatus.HELD:
                raise RunHeld(self.id, run.hold_reason)
            case _:
                raise IllegalTransition(run.status, "have a result", self.id)

    def _failed(self, generation: Generation) -> RunFailed:
        stored = generation.failure or b""
        failed = RunFailed(self.id, self._link.reader.error(stored))
        failed.__cause__ = self._link.reader.failure(stored)
        raised = self._link.reader.traceback(stored)
        if raised:
            failed.add_note(f"The run's own traceback:\n{raised}")  # Python prints it below the error; this one's frames are the client's
        return failed
