"""The same random trace of commands on both stores: every answer is the same, and so is all that is stored after."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from romulus.core.errors import IllegalTransition
from romulus.core.machine import Change, RunStatus
from romulus.core.operations import ReportKind
from romulus.core.pools import NewPoolAttempt, PoolAttempt, PoolEnd, PoolReport
from romulus.core.record import AttemptRow, HoldKind, Message, Record
from romulus.core.requests import ask_child, release, request_cancel, terminate
from romulus.core.transition import CloseChild, CloseWait, Closing, Created, NewChild, Transition
from romulus.store import open_store
from romulus.store.contract import RunFilter, Store
from tests.postgres.server import Database
from tests.store import operating
from tests.store.kit import (
    HELD,
    LEASE,
    PENDING,
    SECOND,
    MovableHost,
    advance,
    claim,
    entry,
    event,
    free,
    new_run,
    park,
    register,
    succeed,
    wait,
)

OWNERS = ("w1", "w2")
RUNS, EVENTS, STEPS = 6, 14, 120
CHILDREN = ("k0", "k1", "k2", "k3", "r0")
WEIGHTS = {
    "move": 60, "operate": 24, "report operation": 12, "take operations": 6, "claim": 24, "start": 10, "send": 6, "take pool": 6,
    "report pool": 6, "lose": 1, "change": 2,
}  # of the others 2  # fmt: skip
NAMES = (*(f"r{n}" for n in range(RUNS)), *CHILDREN[:4])
START = 1_800_000_000 * SECOND


class FrozenHost(MovableHost):
    """Time stands still but for what the trace moves: which of two runs is due first is never a matter of how fast a store is."""

    def wall(self) -> int:
        return START + self.ahead

    def monotonic(self) -> int:
        return self.ahead


@dataclass
class Side:
    """One store, and the records that its workers hold."""

    store: Store
    host: MovableHost
    held: dict[str, Record] = field(default_factory=dict[str, Record])
    sent: dict[str, Transition] = field(default_factory=dict[str, Transition])
    worked: list[PoolAttempt] = field(default_factory=list[PoolAttempt])  # attempts claimed from the pool, oldest first

    async def fresh(self, run_id: str) -> Record | None:
        return await self.store.record("default", run_id)


async def run_trace(sides: list[Side], random: Random) -> None:
    for side in sides:
        for owner in OWNERS:
            (await register(side.store, side.host, owner)).close()
    for number in range(STEPS):
        name, arguments = choose(random)
        for side in sides:
            side.host.advance(1_000)
        answers = [await COMMANDS[name](side, *arguments) for side in sides]
        assert answers[0] == answers[1], f"command {number}: {name}{arguments}"
        if number % 10 == 0 or number == STEPS - 1:
            pictures = [await picture(side.store) for side in sides]
            assert pictures[0] == pictures[1], f"after command {number}: {name}{arguments}"


def choose(random: Random) -> tuple[str, tuple[Any, ...]]:
    run, (name,) = random.choice(NAMES), random.choices(list(COMMANDS), [WEIGHTS.get(name, 2) for name in COMMANDS])
    arguments: dict[str, tuple[Any, ...]] = {
        "start": (f"r{random.randrange(RUNS)}", random.choice([0, 0, 1, -1]), random.choice([None, 5 * SECOND])),
        "send": (f"e{random.randrange(EVENTS)}", random.choice("ab"), random.choice([b"1", b"1", b"2"])),
        "match": (random.choice([1, 100]),),
        "claim": (random.choice(OWNERS), random.choice([1, 10])),
        "pulse": (random.choice(OWNERS),),
        "move": (random.randrange(100), random.choice(sorted(MOVES)), random.random() < 0.1, random.randrange(1 << 30)),
        "again": (run,),
        "change": (run, random.choice(["cancel", "terminate", "release"])),
        "advance": (random.choice([1, SECOND, 20 * SECOND]),),
        "lose": (random.choice(OWNERS),),
        "take pool": (random.choice(OWNERS), random.choice([1, 10])),
        "report pool": (random.randrange(100), random.choice(list(PoolEnd)), random.random() < 0.2),
        "lose pool": (),
        "close children": (random.choice([1, 10]),),
        "operate": (random.randrange(100), random.randrange(1 << 30)),
        "report operation": (random.randrange(100), random.choice(list(ReportKind)), random.random() < 0.2),
        "take operations": (random.choice(OWNERS), random.choice([1, 10]), random.random() < 0.3),
    }
    return name, arguments[name]


# ---- commands ------------------------------------------------------------------------------
async def start(side: Side, run_id: str, priority: int, delay: int | None) -> Any:
    status = RunStatus.SCHEDULED if delay else PENDING
    (answer,) = await side.store.start([new_run(run_id, priority=priority, delay=delay, status=status)])
    return isinstance(answer, Created)


async def send(side: Side, event_id: str, correlation_id: str, payload: bytes) -> Any:
    return list(await side.store.send([event(event_id, correlation_id=correlation_id, payload=payload)]))


async def match(side: Side, limit: int) -> Any:
    while await side.store.match(limit):
        pass


async def do_claim(side: Side, owner: str, limit: int) -> Any:
    if any(worker.dead for worker in await side.store.workers("default") if worker.id == owner):
        return None  # it claims nothing; what else its look sets right is each store's own affair
    claims = await claim(side.store, owner, limit=limit)
    side.held |= {record.run.id: record for record in claims.records}
    return [face(record) for record in claims.records]


async def pulse(side: Side, owner: str) -> Any:
    return sorted(face(record) for record in await side.store.pulse(owner))


async def move(side: Side, which: int, how: str, stale: bool, seed: int) -> Any:
    """Write a transition of a run that is claimed, from what is stored now, or from what its worker has held all the time."""
    owned = [run.id for run in (await side.store.runs(RunFilter("default"), None, 100)).items if run.owner is not None]
    if not owned:
        return None
    run_id = owned[which % len(owned)]
    record = side.held.get(run_id) if stale else await side.fresh(run_id)
    if record is None or record.run.owner is None:
        return None
    t = MOVES[how](record, Random(seed))
    side.sent[run_id] = t
    return await side.store.apply([t])


async def operate(side: Side, which: int, seed: int) -> Any:
    """Write transitions of two claimed runs that speak of operations, in one batch."""
    owned = [run.id for run in (await side.store.runs(RunFilter("default"), None, 100)).items if run.owner is not None]
    chosen = [owned[n] for n in sorted({which % len(owned), (which + 1) % len(owned)})] if owned else []
    batch: list[Transition] = []
    for number, run_id in enumerate(chosen):
        record = await side.fresh(run_id)
        assert record is not None
        rows = list(await side.store.operations_of(record.generation.key))
        batch.append(operating.operating(record, rows, Random(seed + number)))
        side.sent[run_id] = batch[-1]
    return list(await side.store.apply(batch)) if batch else None


async def report_operation(side: Side, which: int, kind: ReportKind, stale: bool) -> Any:
    return await operating.report(side.store, which, kind, stale)


async def take_operations(side: Side, owner: str, limit: int, queued: bool) -> Any:
    return await operating.take(side.store, owner, limit, queued=queued)


async def again(side: Side, run_id: str) -> Any:
    """Resubmit the last transition, as after a commit without an answer."""
    return await side.store.apply([side.sent[run_id]]) if run_id in side.sent else None


async def change(side: Side, run_id: str, how: str) -> Any:
    decide: Any = {
        "cancel": lambda run, _, now: request_cancel(run, "why", now),
        "terminate": lambda run, _, now: terminate(run, "why", now),
        "release": lambda run, _, now: release(run, now),
    }[how]
    try:
        changed = await side.store.change("default", run_id, decide)
    except IllegalTransition as error:
        return str(error)
    return None if changed is None else [(run.status, run.cancel_seq, run.revision, run.owner) for run in changed]


async def advance_clock(side: Side, by: int) -> Any:
    side.host.advance(by)


async def lose(side: Side, owner: str) -> Any:
    """A worker dies and comes again under the same name, for short."""
    await side.store.mark_dead(owner)
    freed = await side.store.sweep(100, PENDING)
    await side.store.deregister(owner)
    (await register(side.store, side.host, owner)).close()
    return freed.runs


async def take_pool(side: Side, owner: str, limit: int) -> Any:
    taken = await side.store.take_pool(owner, "default", ["far"], ["train"], limit, LEASE)
    side.worked += taken.rows
    return [(row.run_id, row.seq, row.number, row.fence) for row in taken.rows]


async def report_pool(side: Side, which: int, end: PoolEnd, stale: bool) -> Any:
    """Report an attempt that was claimed at some time, under its fence or one too low, by whoever has it."""
    if not side.worked:
        return None
    row = side.worked[which % len(side.worked)]
    report = PoolReport(row.key, row.fence - stale, row.run, OWNERS[which % 2], end, b"how", "{}")
    return list(await side.store.report_pool([report]))


async def lose_pool(side: Side) -> Any:
    return await side.store.lose_pool(100)


async def close_children(side: Side, limit: int) -> Any:
    return await side.store.close_children(limit, partial(ask_child, lambda: b"seed" * 4))


COMMANDS: dict[str, Any] = {
    "start": start, "send": send, "match": match, "claim": do_claim, "pulse": pulse, "move": move, "again": again, "change": change,
    "advance": advance_clock, "lose": lose, "take pool": take_pool, "report pool": report_pool, "lose pool": lose_pool,
    "close children": close_children, "operate": operate, "report operation": report_operation, "take operations": take_operations,
}  # fmt: skip


# ---- transitions ---------------------------------------------------------------------------
def opening(record: Record, random: Random) -> Transition:
    seq = record.run.revision + 1
    shared, include_late = random.random() < 0.2, random.random() < 0.2
    opened = wait(seq, correlation_id=random.choice("ab"), shared=shared, include_late=include_late)
    return advance(record, entry(record.run.position), opens=[opened])


def closing(record: Record, random: Random) -> Transition:
    if not record.waits:
        return opening(record, random)
    chosen = random.choice(list(record.waits))
    if chosen.deposit is None:
        closes = [CloseWait(chosen.seq, random.choice([Closing.WITHDRAWN, Closing.TIMED_OUT]))]
    else:
        how = random.choice(list(Closing))
        closes = [CloseWait(chosen.seq, how, chosen.deposit.event if how in (Closing.CONSUMED, Closing.BAD) else None)]
    return advance(record, entry(record.run.position, kind="wait"), closes=closes)


def trying(record: Record, random: Random) -> Transition:
    row = AttemptRow(random.randrange(3), "aa", 1, 1, 0, 5, b"boom", name=f"step {record.run.revision}")
    return advance(record, attempts=[row], settled=[random.randrange(3)], armed='[[0,1,"aa"]]')


def parking(record: Record, random: Random) -> Transition:
    return park(record, entry(record.run.position), wake_at=random.choice([None, 0]))


def holding(record: Record, random: Random) -> Transition:
    return advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "why"))


def pooling(record: Record, random: Random) -> Transition:
    """Queue an attempt; the number of one that is there already stays its own."""
    seq = record.run.revision + 1
    queued = NewPoolAttempt(seq, "far", "train", "aa", b"{}", 1, 0, None, None, fence=record.run.fence)
    return advance(record, pools=[queued], pooled=True)


def reading(record: Record, random: Random) -> Transition:
    """Take what the inbox holds; an attempt of a pool that was reported goes with its message."""
    if not record.inbox:
        return pooling(record, random)
    taken = [message.key for message in record.inbox][: random.choice([1, 500])]
    recalled = sorted({m.seq for m in record.inbox if m.key in taken and m.about == "pool"})
    return advance(record, entry(record.run.position), taken=taken, recalled=recalled, parent=True, pooled=True)


def bearing(record: Record, random: Random) -> Transition:
    """Start a child, perhaps under an ID that is taken."""
    seq, policy = record.run.revision + 1, random.choice(["cancel", "terminate", "abandon"])
    child = new_run(random.choice(CHILDREN), depth=record.run.depth + 1)
    return advance(record, children=[NewChild(child, seq, policy, tell=random.random() < 0.5)], parent=True)


def asking(record: Record, random: Random) -> Transition:
    return advance(record, closing=[CloseChild(random.randrange(1, 20), random.choice(["cancel", "terminate"]), "why")], parent=True)


MOVES: dict[str, Any] = {
    "open": opening, "close": closing, "try": trying, "park": parking, "hold": holding,
    "free": lambda record, _: free(record), "pool": pooling, "read": reading, "child": bearing, "ask": asking,
    "succeed": lambda record, _: replace(succeed(record), progressed=True, child=record.run.depth > 0, parent=True, pooled=True),
}  # fmt: skip


# ---- what is compared ----------------------------------------------------------------------
def face(record: Record) -> Any:
    run = record.run
    waits = [(w.seq, w.correlation_id, w.shared, w.deposit.event_id if w.deposit else "") for w in record.waits]
    return (
        run.id, str(run.status), run.generation, run.position, run.revision, run.owner or "", run.cancel_seq, run.cancel_reason, run.armed,
        run.losses, run.wake_at is None, run.priority, run.digest, run.hold_reason, run.started_at is None, run.finished_at is None,
        [(a.seq, a.number) for a in record.attempts], waits, [told(message) for message in record.inbox], record.parent, record.pooled,
    )  # fmt: skip


def told(message: Message) -> Any:
    """Return what a message says, without the stores' own keys."""
    info = message.info
    if message.about == "pool":
        info = json.dumps(json.loads(info)[1:])
    elif message.about == "conflict":
        taken = json.loads(info)
        info = json.dumps([taken[0], bool(taken[2]), taken[3], taken[6]])
    return (message.about, message.seq, bool(message.failed), message.body, info)


async def picture(store: Store) -> Any:
    """Return all that is stored, without keys and times."""
    runs = [await store.record("default", run.id) for run in (await store.runs(RunFilter("default"), None, 100)).items]
    return {
        "runs": [face(record) for record in runs if record is not None],
        "journal": [[e[:5] for e in await store.history(r.generation.key, 0, 1000)] for r in runs if r is not None],
        "ends": [(r.generation.ended_at is None, r.generation.result) for r in runs if r is not None],
        "children": [[tuple(c) for c in await store.children(r.generation.key)] for r in runs if r is not None],
        "pools": [[(p.seq, p.number, p.state, p.owner) for p in await store.pooled(r.generation.key)] for r in runs if r is not None],
        "evidence": [len(await store.evidence(r.run.key)) for r in runs if r is not None],
        "events": [(e.id, e.state, e.late) for e in (await store.events("default", None, None, 100)).items],
        "operations": await operating.picture(store),
        "waits": sorted((w.run_id, w.seq, w.event_id or "") for w in (await store.waits("default", None, 100)).items),
    }


@pytest.mark.parametrize("seed", range(8))
async def test_both_stores_answer_alike(database: Database, seed: int) -> None:
    sides: list[Side] = []
    for url in ("sqlite://", database.url):
        host = FrozenHost()
        if url == database.url:
            host.moved = lambda ahead: database.freeze(START + ahead)
            database.freeze(START)
        sides.append(Side(open_store(url, host), host))
        await sides[-1].store.open()
    try:
        await run_trace(sides, Random(seed))
    finally:
        for side in sides:
            await side.store.close()
            side.host.close()
