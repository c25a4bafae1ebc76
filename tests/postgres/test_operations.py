"""Operations and children on two connections: a report meets the run's own transition, a child ends while it changes hands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from romulus.core.errors import OperationConflict
from romulus.core.machine import Change, RunStatus
from romulus.core.operations import NewIntent, OperationMark, OperationState, Protocol, Report, ReportKind, decide
from romulus.core.record import HoldKind, Record
from romulus.core.transition import Attach, NewChild, NewGeneration, Transition, Verdict
from romulus.store.contract import OperationsServed
from romulus.store.postgres import PostgresStore, operating, operations, reporting
from romulus.store.postgres.advance import statement
from tests.postgres.kit import blocked, opened
from tests.postgres.server import Database
from tests.postgres.test_interleavings import RUN, holding, written
from tests.store.kit import HELD, PENDING, SECOND, MovableHost, advance, again, claim, claimed, new_run, register, start, succeed

__all__ = ["holding"]
S, K = OperationState, ReportKind
LOOKED = Protocol(idempotent=False, key_lifetime=None, settle=0, timeout=SECOND, has_lookup=True)
COPIES = """DO $$ DECLARE names text; BEGIN
    SELECT string_agg(column_name, ', ') INTO names FROM information_schema.columns WHERE table_schema = 'romulus'
    AND table_name = 'operations' AND column_name NOT IN ('key', 'id', 'seq', 'state', 'owner', 'due');
    EXECUTE format('INSERT INTO romulus.operations (id, seq, state, owner, due, %1$s) SELECT id || n, seq + n,
        CASE WHEN mod(n, 4) > 0 THEN ''confirmed'' ELSE ''unknown'' END, NULL, CASE WHEN mod(n, 4) = 0 THEN romulus.clock() END, %1$s
        FROM romulus.operations, generate_series(1, 20000) n', names); END $$"""  # three in four are settled
BY_ALL_KEYS = "Index Cond: ((run = h.key) AND (generation = n.generation) AND (seq = n.seq))"
OPERATIONS = "SELECT 1 FROM romulus.operations FOR UPDATE"


async def armed(store: PostgresStore, host: MovableHost) -> Record:
    """Return a run with one operation armed under its claim."""
    record = await claimed(store, host)
    assert await store.apply([advance(record, intents=[NewIntent(1, "op-1", "write", "d1", b"{}", LOOKED, S.ARMED, 5_000)], operates=True)])
    return await again(store, record)


def says(store: PostgresStore, kind: ReportKind) -> Any:
    return asyncio.ensure_future(store.report([Report("default", "op-1", kind, "ada", body=b'"v"')], decide, PENDING))


async def test_a_group_of_reports_has_as_many_statements_as_one(store: PostgresStore, host: MovableHost) -> None:
    record = await claimed(store, host)
    many = [NewIntent(seq, f"op-{seq}", "write", "d1", b"{}", LOOKED, S.ARMED, 5_000) for seq in range(21)]
    assert await store.apply([advance(record, intents=many, operates=True)]) == [Verdict.APPLIED]
    counted: list[list[str]] = []
    for ids in (["op-20"], [f"op-{seq}" for seq in range(20)]):
        points: list[str] = []
        host.at_point = points.append
        decided = await asyncio.gather(*(
            store.report([Report("default", each, K.CALLED_APPLIED, "ada", body=b'"v"')], decide, PENDING) for each in ids
        ))  # fmt: skip
        host.at_point = None
        assert [answer.row.state for (answer,) in decided if answer is not None] == [S.CONFIRMED] * len(ids)
        counted.append([point for point in points if point.startswith("report.")])

    assert counted[0] == counted[1]
    assert len((await again(store, record)).inbox) == 21


async def test_no_statement_over_operations_reads_a_whole_table_without_statistics_either(store: PostgresStore) -> None:
    """A plan is made once for a connection, most often while there is little: it must not be one that reads all runs later."""
    given = [sql for module in (operations, reporting) for sql in vars(module).values() if isinstance(sql, str)]
    statements = [sql for sql in given if sql.startswith(("SELECT", "UPDATE", "INSERT", "WITH")) and not sql.endswith(("state ", ") "))]
    statements += [operating.LOCK_RUNS, operating.MAILED, operating.LEAVE_ALL]
    async with store._pool.taken() as session:
        for sql in statements:
            nothing = [None] * max((int(number) for number in re.findall(r"\$(\d+)", sql)), default=0)
            plan = "\n".join(line for (line,) in await session.connection.fetch(f"EXPLAIN {sql}", *nothing))
            assert "Seq Scan" not in plan, f"{sql}\n{plan}"
    assert len(statements) > 25


async def test_what_a_transition_writes_of_operations_is_reached_by_its_keys_without_statistics_either(
    store: PostgresStore, host: MovableHost
) -> None:
    record = await armed(store, host)
    more = [NewIntent(seq, f"op-{seq}", "write", "d1", b"{}", LOOKED, state, 0, since=since)
            for seq, state, since in ((2, S.ARMED, None), (3, S.QUEUED, None), (4, S.UNKNOWN, 1))]  # fmt: skip
    marks = [OperationMark(1, S.ARMED, S.UNKNOWN, due=1, error=b"boom")]
    sql, args = statement([succeed(record, marks=marks, intents=more, forsaken=[7], operates=True)])
    async with store._pool.taken() as session:
        plan = "\n".join(line for (line,) in await session.connection.fetch(f"EXPLAIN {sql}", *args))
    assert BY_ALL_KEYS in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_a_batch_of_many_runs_locks_each_operation_by_its_keys_too(store: PostgresStore, host: MovableHost) -> None:
    (await register(store, host)).close()
    await start(store, *(f"r{n}" for n in range(50)))
    records = (await claim(store, limit=50)).records
    made = [NewIntent(1, f"op-{record.run.id}", "write", "d1", b"{}", LOOKED, S.ARMED, 5_000) for record in records]
    sql, args = statement([advance(record, intents=[each], operates=True) for record, each in zip(records, made, strict=True)])
    async with store._pool.taken() as session:
        plan = "\n".join(line for (line,) in await session.connection.fetch(f"EXPLAIN {sql}", *args))
    assert len(records) == 50
    assert BY_ALL_KEYS in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_what_nobody_serves_is_not_looked_for_among_all_that_was_ever_sent(
    store: PostgresStore, host: MovableHost, database: Database
) -> None:
    await armed(store, host)
    database.execute(COPIES)
    database.execute("ANALYZE romulus.operations")
    async with store._pool.taken() as session:
        given = ("default", 0, ["default"], ["write"], [True], 100)
        plan = "\n".join(line for (line,) in await session.connection.fetch(f"EXPLAIN {operations.UNSERVED}", *given))
    assert "operations_due" in plan, plan


@pytest.mark.parametrize("first", ["mark", "report"])
async def test_a_mark_and_a_report_of_one_operation_are_written_one_after_the_other(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any, first: str
) -> None:
    record = await armed(store, host)
    t = advance(record, marks=[OperationMark(1, S.ARMED, S.UNKNOWN, due=1, error=b"boom")])
    with holding(OPERATIONS):
        calls = [lambda: asyncio.ensure_future(store.apply([t])), lambda: says(store, K.CALLED_APPLIED)]
        one = calls[0 if first == "mark" else 1]()
        await blocked(database, 1)
        two = calls[1 if first == "mark" else 0]()
        await blocked(database, 2)
    marked = await (one if first == "mark" else two)
    await (two if first == "mark" else one)

    operation = await store.operation("default", "op-1")
    assert operation is not None
    assert (marked, operation.state) == ([Verdict.APPLIED if first == "mark" else Verdict.REFUSED], S.CONFIRMED)
    assert (await again(store, record)).run.revision == record.run.revision + (first == "mark")


async def test_an_operation_is_not_locked_by_who_still_waits_for_its_run(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    """Reports lock in the same order, so that neither waits for the other for ever."""
    record = await armed(store, host)
    with holding(RUN):
        one = asyncio.ensure_future(store.apply([advance(record, marks=[OperationMark(1, S.ARMED, S.UNKNOWN, due=1)])]))
        await blocked(database, 1)
        database.execute(f"{OPERATIONS} NOWAIT")
    assert await one == [Verdict.APPLIED]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_claim_that_is_lost_while_its_mark_waits_for_the_run_marks_nothing(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any, kept: bool
) -> None:
    """What the statement saw of the run before it waited is not what holds; what did not concern its guards is no reason to refuse."""
    record = await armed(store, host)
    second = NewIntent(2, "op-2", "write", "d1", b"{}", LOOKED, S.ARMED, 5_000)
    with holding(RUN) as connection:
        mark = OperationMark(1, S.ARMED, S.CONFIRMED, awaited=False)
        one = asyncio.ensure_future(store.apply([advance(record, marks=[mark], intents=[second], operates=True)]))
        await blocked(database, 1)
        connection.execute("UPDATE romulus.runs SET cancel_seq = 1" if kept else "UPDATE romulus.runs SET fence = fence + 1")
    assert await one == [Verdict.APPLIED if kept else Verdict.REFUSED]

    states = [None if found is None else found.state for found in [await store.operation("default", each) for each in ("op-1", "op-2")]]
    assert states == ([S.CONFIRMED, S.ARMED] if kept else [S.ARMED, None])
    assert len(database.execute("SELECT 1 FROM romulus.journal")) == 0
    assert (await again(store, record)).run.revision == record.run.revision + kept


@pytest.mark.parametrize("first", ["hold", "report"])
async def test_a_run_is_not_held_for_a_review_that_has_just_been_made(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any, first: str
) -> None:
    record = await armed(store, host)
    await store.apply([advance(record, marks=[OperationMark(1, S.ARMED, S.UNKNOWN, due=1)])])
    record = await again(store, record)
    hold = advance(record, change=Change.HOLD, status=HELD, hold=(HoldKind.REVIEW, "nobody knows"))
    with holding(RUN):
        calls = [lambda: asyncio.ensure_future(store.apply([hold])), lambda: says(store, K.RESOLVED_APPLIED)]
        one = calls[0 if first == "hold" else 1]()
        await blocked(database, 1)
        two = calls[1 if first == "hold" else 0]()
        await blocked(database, 2)
    await asyncio.gather(one, two)

    run = (await again(store, record)).run
    assert run.status == (RunStatus.PENDING if first == "hold" else RunStatus.RUNNING)
    assert len((await again(store, record)).inbox) == 1


async def test_a_child_that_ends_while_another_generation_takes_it_over_is_told_of(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    """Neither transition sees the other's write; the message is there for whoever has the child."""
    record = await claimed(store, host)
    await store.apply([advance(record, children=[NewChild(new_run("kept", workflow="item", depth=1), 1, "abandon")], parent=True)])
    begins = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    record = await again(store, record)
    await store.apply(
        [advance(record, change=Change.CONTINUE, status=PENDING, cancel_seq=0, wake_at=0, begins=begins, position=0, parent=True)]
    )
    (second,) = (await claim(store)).records
    (child,) = (await claim(store, serves=[("item", "1", "3.11:here")])).records
    async with written(store, succeed(child, child=True)) as commit:
        assert await store.apply([advance(second, attaches=[Attach(5, child.run.key, "cancel")])]) == [Verdict.APPLIED]
        assert (await again(store, second)).inbox == []
        await commit()

    assert [(m.about, m.seq, m.body) for m in (await again(store, second)).inbox] == [("child", 5, b'"done"')]
    assert [r.run.id for r in await store.pulse("w1")] == ["r1"]


async def ends_at_once(store: PostgresStore, host: MovableHost, ending: Callable[..., Transition]) -> None:
    """Let a child end while its parent takes the transition *ending*: neither sees the other's write."""
    record = await claimed(store, host)
    await store.apply([advance(record, children=[NewChild(new_run("kept", workflow="item", depth=1), 1, "abandon")], parent=True)])
    record = await again(store, record)
    (child,) = (await claim(store, serves=[("item", "1", "3.11:here")])).records
    async with written(store, succeed(child, child=True)) as commit:
        assert await store.apply([ending(record, parent=True)]) == [Verdict.APPLIED]
        await commit()


@pytest.mark.parametrize(("ending", "left"), [(succeed, 0), (advance, 1)])
async def test_what_a_child_tells_a_parent_that_ends_in_the_same_moment_goes_with_the_next_sweep(
    store: PostgresStore, database: Database, host: MovableHost, ending: Callable[..., Transition], left: int
) -> None:
    """The message comes after the parent has forgotten its own. One that can be read stays."""
    await ends_at_once(store, host, ending)
    await store.sweep(10, PENDING)

    assert database.execute("SELECT count(*) FROM romulus.inbox") == [(left,)]


async def test_what_a_child_told_stays_where_its_ended_parent_is_being_reopened(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any
) -> None:
    await ends_at_once(store, host, succeed)
    with holding("UPDATE romulus.runs SET finished_at = NULL WHERE id = 'r1'"):
        await store.sweep(10, PENDING)

    assert database.execute("SELECT count(*) FROM romulus.inbox") == [(1,)]


async def test_two_parents_that_start_the_same_child_at_once_create_it_once(
    store: PostgresStore, database: Database, host: MovableHost
) -> None:
    records = [await claimed(store, host, name, f"owner of {name}") for name in ("r1", "r2")]
    (await register(store, host, "w9")).close()
    child = NewChild(new_run("shared", workflow="item", depth=1), 1, "cancel")
    verdicts = await asyncio.gather(*(store.apply([advance(r, children=[child], parent=True)]) for r in records))

    assert verdicts == [[Verdict.APPLIED], [Verdict.APPLIED]]
    told = [[m.about for m in (await again(store, r)).inbox] for r in records]
    assert sorted(told) == [[], ["conflict"]]


# ---- one outcome, whoever is first ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "becomes", "refused"),
    [
        (K.RESOLVED_APPLIED, K.GIVEN_UP, S.CONFIRMED, True),
        (K.GIVEN_UP, K.RESOLVED_APPLIED, S.ABANDONED, True),
        (K.RESOLVED_APPLIED, K.SENT, S.CONFIRMED, False),
        (K.SENT, K.RESOLVED_APPLIED, S.CONFIRMED, True),
        (K.CALLED_APPLIED, K.GIVEN_UP, S.CONFIRMED, True),
        (K.GIVEN_UP, K.CALLED_APPLIED, S.ABANDONED, False),
        (K.CALLED_APPLIED, K.SENT, S.CONFIRMED, False),
        (K.RESOLVED_ABSENT, K.SENT, S.CONFIRMED, False),
    ],
)
async def test_reviewers_a_late_success_and_a_callback_race_to_one_outcome(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any,
    first: ReportKind, second: ReportKind, becomes: OperationState, refused: bool,
) -> None:  # fmt: skip
    record = await armed(store, host)
    await store.apply([advance(record, marks=[OperationMark(1, S.ARMED, S.UNKNOWN, due=1)])])
    async with opened(database.url, host) as other:
        with holding(OPERATIONS):
            one = says(store, first)
            await blocked(database, 1)
            two = says(other, second)
            await blocked(database, 2)
        assert (await one)[0].changed
        if refused:
            with pytest.raises(OperationConflict, match="and cannot be"):
                await two
        else:
            await two
    operation = await store.operation("default", "op-1")
    assert operation is not None
    assert operation.state is becomes
    notes = [(note.kind.removeprefix("conflict "), note.state) for note in await store.operation_notes(operation.key)]
    assert [kind for kind, _ in notes] == [first] + [second] * (not refused)
    told = [message for message in (await again(store, record)).inbox if message.about == "operation"]
    assert len(told) == 1


@pytest.mark.parametrize("first", ["withdrawal", "arming"])
async def test_what_its_run_withdraws_and_its_pool_arms_is_one_or_the_other(
    store: PostgresStore, database: Database, host: MovableHost, holding: Any, first: str
) -> None:
    record = await claimed(store, host)
    queued = NewIntent(1, "op-1", "write", "d1", b"{}", LOOKED, S.QUEUED, 0, pool="side")
    await store.apply([advance(record, intents=[queued], operates=True)])
    (await register(store, host, "w2")).close()
    serves = OperationsServed(("side",), ("write",), ("write",))
    (taken,) = (await store.take_queued("w2", "default", serves, 1)).rows
    record = await again(store, record)
    withdrawal = advance(record, marks=[OperationMark(1, S.QUEUED, S.WITHDRAWN, awaited=False)])
    arms = Report("default", "op-1", K.ARMED, "w2", taken.fence, may_leave_until=9)
    with holding(OPERATIONS):
        calls: list[Callable[[], Any]] = [
            lambda: asyncio.ensure_future(store.apply([withdrawal])), lambda: asyncio.ensure_future(store.report([arms], decide, PENDING)),
        ]  # fmt: skip
        one = calls[0 if first == "withdrawal" else 1]()
        await blocked(database, 1)
        two = calls[1 if first == "withdrawal" else 0]()
        await blocked(database, 2)
    withdrawn, (reported,) = (await one, await two) if first == "withdrawal" else (await two, await one)
    operation = await store.operation("default", "op-1")
    assert operation is not None
    if first == "withdrawal":
        assert (withdrawn, reported.changed, operation.state) == ([Verdict.APPLIED], False, S.WITHDRAWN)
    else:
        assert (withdrawn, reported.changed, operation.state) == ([Verdict.REFUSED], True, S.ARMED)


async def test_two_workers_of_a_pool_claim_different_operations(store: PostgresStore, host: MovableHost) -> None:
    record = await claimed(store, host)
    intents = [NewIntent(n, f"op-{n}", "write", "d1", b"{}", LOOKED, S.QUEUED, 0, pool="side") for n in range(1, 21)]
    await store.apply([advance(record, intents=intents, operates=True)])
    serves = OperationsServed(("side",), ("write",), ("write",))
    for worker in ("w2", "w3"):
        (await register(store, host, worker)).close()
    found = await asyncio.gather(*(store.take_queued(worker, "default", serves, 5) for worker in ("w2", "w3", "w2", "w3")))
    claims = [(row.id, row.owner) for taken in found for row in taken.rows]
    assert len(claims) == len({operation for operation, _ in claims})
