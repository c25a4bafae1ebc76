"""The guarantees of DESIGN 9, in its words, on real processes that are killed and frozen. 7 belongs to Remus."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

import romulus
from tests.processes.apps.promises import blocked, bodies, draws, fan, links, listens
from tests.processes.crm import ABILITIES, Crm, Writes, crm, frozen, kinds
from tests.processes.stage import FULL, Process, Stage

__all__ = ["crm"]
pytestmark = pytest.mark.process
WRITES = "tests.processes.apps.writes:app"
APP = "tests.processes.apps.promises:app"
COUNT = 7


async def _progress(stage: Stage, entries: int, *rests: str) -> bool:
    """Wait until so many more entries are in the record, or every run has ended, or *rests*; return whether any is still going on."""
    still = ("succeeded", *rests)

    def now() -> tuple[int, int]:
        ((count,),) = stage.rows("SELECT count(*) FROM journal")
        ((live,),) = stage.rows(f"SELECT count(*) FROM runs WHERE status NOT IN ({', '.join('?' * len(still))})", *still)
        return count, live

    before = now()[0]
    await stage.until(lambda: now()[0] >= before + entries or now()[1] == 0, f"{entries} more entries")
    return now()[1] > 0


def _attempts(stage: Stage) -> dict[tuple[str, int], list[int]]:
    """Return the attempts whose bodies began, by run and command."""
    begun = defaultdict(list)
    for line in stage.effects("link"):
        begun[line["run"], line["seq"]].append(line["attempt"])
    return begun


def _recorded(stage: Stage) -> dict[tuple[str, int], int]:
    """Return the attempt of each recorded step, by run and command."""
    rows = stage.rows("SELECT r.id, j.seq, j.attempt FROM journal j JOIN runs r ON r.generation_key = j.generation WHERE j.kind = 'step'")
    return {(run, seq): attempt for run, seq, attempt in rows}


async def test_1_once_a_steps_outcome_is_committed_no_further_attempt_is_granted_in_that_generation(stage: Stage) -> None:
    """Workers are killed again and again in the middle of many runs; then a fork makes new history."""
    worker = await stage.worker(APP)
    handles = [await stage.client.start(links.options(id=f"r{n}"), COUNT) for n in range(30)]
    fanned = await stage.client.start(fan.options(id="fan"), 400)
    while await _progress(stage, 120):
        worker.kill()
        worker = await stage.worker(APP)
    assert [await handle.result(timeout=30) for handle in handles] == [sum(range(COUNT + 3))] * 30
    assert await fanned.result(timeout=30) == sum(range(400))

    begun, committed = _attempts(stage), _recorded(stage)
    assert begun.keys() == committed.keys()
    assert all(max(numbers) == committed[command] for command, numbers in begun.items())
    assert all(numbers == sorted(set(numbers)) for numbers in begun.values())
    assert any(len(numbers) > 1 for numbers in begun.values())  # else nothing was lost, and nothing shown
    forked = await handles[0].fork(2)
    assert await forked.result(timeout=30) == sum(range(COUNT + 3))
    assert {line["seq"] for line in stage.effects("link", run=forked.id)} >= set(range(3, COUNT + 1))
    assert {line["seq"] for line in stage.effects("link", run=forked.id)}.isdisjoint({1, 2})
    stage.whole()


async def test_1_a_lost_attempt_may_still_be_executing_its_result_is_refused(stage: Stage) -> None:
    first = await stage.worker(APP)
    handle = await stage.client.start(blocked.options(id="r"), "gate")
    await stage.seen("begin")
    await stage.freeze(first)
    second = await stage.worker(APP)
    await stage.seen("begin", attempt=2)
    await stage.freeze(second)
    first.thaw()  # its body goes on beside attempt 2, which is recorded, and not even frozen can it be reported for
    stage.open("gate")
    await stage.until(lambda: stage.rows("SELECT count(*) FROM workers WHERE NOT dead") == [(2,)], "the first registers afresh")
    assert [entry for entry in await handle.history() if entry.attempt == 1] == []
    second.thaw()
    assert await handle.result(timeout=30) == "gate"
    assert all(entry.attempt > 1 for entry in await handle.history())
    stage.whole()


async def test_2_each_attempt_is_recorded_before_its_body_starts(stage: Stage) -> None:
    """The bodies look for themselves: every kind of step, first attempts and later ones, with and without a free slot."""
    await stage.worker(APP, "--concurrency", "5")
    handle = await stage.client.start(bodies.options(id="r"), 9)
    assert await handle.result(timeout=60) == 3 * 3 * (1 + 2 + 3)
    assert [line["recorded"] for line in stage.effects("body")] == [True] * (3 * 3 * (1 + 2 + 3))
    assert sorted(line["attempt"] for line in stage.effects("body", step="threaded")) == [1] * 9 + [2] * 6 + [3] * 3
    stage.whole()


async def test_3_at_most_one_claim_can_commit_to_a_run_at_any_time(stage: Stage) -> None:
    """Two workers, in turn frozen past their lease while they work: each run's entries are stretches of one claim each."""
    workers = [await stage.worker(APP), await stage.worker(APP)]
    handles = [await stage.client.start(links.options(id=f"r{n}"), 40) for n in range(12)]
    found = "SELECT count(*) FROM workers WHERE dead AND pid = ?"
    for turn in range(3):
        frozen = workers[turn % 2]
        await stage.freeze(frozen)
        before = stage.rows(found, frozen.pid)
        await stage.until(lambda f=frozen, b=before: stage.rows(found, f.pid) != b, "the frozen worker is found dead")
        frozen.thaw()
        if not await _progress(stage, 20):
            break
    assert [await handle.result(timeout=60) for handle in handles] == [sum(range(43))] * 12
    rows = stage.rows("SELECT generation, position, fence FROM journal ORDER BY generation, position")
    assert rows == sorted(rows)  # within a run fences never fall: no claim commits after a later one has
    owners = {(line["run"], line["fence"]): line["pid"] for line in stage.effects("link")}
    assert all(line["pid"] == owners[line["run"], line["fence"]] for line in stage.effects("link"))
    stage.whole()


async def test_4_a_report_under_an_older_claim_changes_no_state_if_it_reaches_the_store_it_is_kept(stage: Stage) -> None:
    """A worker may notice its loss before it reports; until one reports first, it is done again."""
    second: Process | None = None
    for trial in range(8):
        first = await stage.worker(APP)
        handle = await stage.client.start(blocked.options(id=f"r{trial}"), f"gate{trial}")
        (begun,) = await stage.seen("begin", run=handle.id)
        await stage.freeze(first)
        second = second or await stage.worker(APP)
        await stage.seen("begin", run=handle.id, attempt=2)
        stage.open(f"gate{trial}")
        assert await handle.result(timeout=30) == f"gate{trial}"
        before = stage.rows("SELECT * FROM runs WHERE id = ?", handle.id), await handle.history()
        first.thaw()
        await stage.until(lambda first=first: "registering afresh" in first.log or "was refused" in first.log, "the first finds out")
        await stage.until(lambda first=first: "registering afresh" in first.log, "the first registers afresh")
        assert (stage.rows("SELECT * FROM runs WHERE id = ?", handle.id), await handle.history()) == before
        kept = await handle.evidence()
        assert {evidence.fence for evidence in kept} <= {begun["fence"]}
        first.kill()
        if kept:
            break
    else:
        pytest.fail("no late report reached the store")
    stage.whole()


async def test_5_an_event_whose_receipt_was_returned_appears_in_exactly_one_entry_and_its_id_is_deduplicated(stage: Stage) -> None:
    """Workers are killed while events are matched and consumed; every event is sent twice."""
    runs = 40
    worker = await stage.worker(APP)
    handles = [await stage.client.start(listens.options(id=f"r{n}"), f"k{n}") for n in range(runs)]

    async def say(n: int, what: str) -> None:
        receipts = [await stage.client.send_event("said", what, correlation_id=f"k{n}", event_id=f"{n}-{what}") for _ in range(2)]
        assert [receipt.duplicate for receipt in receipts] == [False, True]

    await asyncio.gather(*(say(n, "one") for n in range(runs)))
    worker.kill()
    worker, _ = await asyncio.gather(stage.worker(APP), asyncio.gather(*(say(n, "two") for n in range(runs))))
    await stage.until(lambda: stage.rows("SELECT count(*) > 5 FROM journal")[0][0] == 1, "some are consumed")
    worker.kill()
    await stage.worker(APP)
    assert [await handle.result(timeout=30) for handle in handles] == [["one", "two"]] * runs
    histories = [await handle.history() for handle in handles]
    assert sorted(str(entry.event_id) for history in histories for entry in history) == sorted(
        f"{n}-{what}" for n in range(runs) for what in ("one", "two")
    )
    with pytest.raises(romulus.EventConflict):
        await stage.client.send_event("said", "other", correlation_id="k0", event_id="0-one")
    stage.whole()


async def test_6_while_an_operation_is_unknown_no_claim_starts_another_send_except_under_a_declared_key_within_its_lifetime(
    stage: Stage, crm: Crm
) -> None:
    """Every answer is lost, nobody can be asked, and workers are killed meanwhile: only those with a key that lasts are sent again."""
    abilities = (*ABILITIES, "brief")
    await crm.behave(drop_answers=len(abilities), lookups_down=True)
    worker, writes = await stage.worker(WRITES), Writes(stage, crm, abilities)
    await writes.start()
    await writes.until("unknown", "held", of=["lookup", "neither", "brief"])
    await stage.until(lambda: len(crm.contacts("write")) == len(abilities), "each was sent; one whose body was slow only after its timeout")
    worker.kill()
    worker = await stage.worker(WRITES)
    await writes.until("confirmed", of=["key", "both"])
    await writes.until("held", of=["lookup", "neither", "brief"])
    worker.kill()
    await stage.worker(WRITES)
    operations = await writes.operations()
    sends = crm.contacts("write")
    assert {ability: sends[operations[ability].id] for ability in ("lookup", "neither", "brief")} == {"lookup": 1, "neither": 1, "brief": 1}
    assert all(sends[operations[ability].id] > 1 for ability in ("key", "both"))
    await crm.behave(lookups_down=False)
    await writes.one_effect_each()
    assert writes.resolved == 3


async def test_6_a_stopped_process_may_still_emit_the_send_it_had_begun(stage: Stage, crm: Crm) -> None:
    """Harmless under a key; what cannot be promised: with a lookup alone it is a second effect, and stands in the operation's history."""
    writes = Writes(stage, crm)
    first = await frozen(stage, writes, WRITES)
    await writes.until("confirmed", of=["lookup", "key", "both"])
    await writes.until("held", of=["neither"])
    operations = await writes.operations()
    assert crm.effects() == {operations[ability].id: 1 for ability in ("lookup", "key", "both")}
    first.thaw()
    await stage.until(lambda: sum(crm.contacts("write").values()) == 3 + len(ABILITIES), "the late sends")
    await writes.until("confirmed")
    assert await writes.finish() == {ability: f"{ability} has pro" for ability in ABILITIES}
    assert writes.resolved == 0  # its own late success settled the one that was held
    assert crm.effects() == {operations[ability].id: 2 if ability == "lookup" else 1 for ability in ABILITIES}
    while "sent" not in await kinds(stage, operations["lookup"].id):
        await asyncio.sleep(0.02)


async def test_8_replay_gives_equal_time_ids_and_random_numbers(stage: Stage) -> None:
    """In four processes with four hash seeds. That commands which differ hold the run is shown by RB-23's tests."""
    rounds = 4
    worker = await stage.worker(APP, PYTHONHASHSEED="0")
    handle = await stage.client.start(draws.options(id="r"), rounds)
    for number in range(1, rounds + 1):
        await stage.seen("drawn", seq=number)
        worker.kill()
        worker = await stage.worker(APP, PYTHONHASHSEED=str(number))
        stage.open(f"drawn-{number}-2")
    found = [list(drawing) for drawing in await handle.result(timeout=30)]
    assert [line["values"] for line in stage.effects("drawn")] == [drawing for drawing in found for _ in range(2)]
    assert len({drawing[1] for drawing in found}) == rounds
    stage.whole()


@pytest.mark.timeout(300)
async def test_9_a_crash_of_any_process_loses_nothing_acknowledged(stage: Stage) -> None:
    """Three workers killed and frozen at random while runs start and events come; all that was acknowledged is done."""
    chance = random.Random(9)
    workers = [stage.starting_worker(APP) for _ in range(3)]
    await stage.ready(*workers)
    expected: dict[str, Any] = {}
    for turn in range(20 if FULL else 6):
        for n in range(10):
            started = await stage.client.start(links.options(id=f"links-{turn}-{n}"), 5)
            expected[started.id] = sum(range(8))
            waiting = await stage.client.start(listens.options(id=f"listens-{turn}-{n}"), f"{turn}-{n}")
            expected[waiting.id] = ["a", "b"]
            await stage.client.send_event("said", "a", correlation_id=f"{turn}-{n}")
        victim = chance.randrange(3)
        if turn % 3 == 2:
            await stage.freeze(workers[victim])
            await _progress(stage, 30, "waiting")  # for events that are not sent yet
            workers[victim].thaw()
        else:
            workers[victim].kill()
            workers[victim] = stage.starting_worker(APP)
        for n in range(10):
            await stage.client.send_event("said", "b", correlation_id=f"{turn}-{n}")
        await _progress(stage, 30, "waiting")  # for events that are not sent yet
    for run, value in expected.items():
        assert await stage.client.get(run).result(timeout=60) == value

    begun, committed = _attempts(stage), _recorded(stage)
    assert begun.keys() == committed.keys()
    assert stage.rows("SELECT state, count(*) FROM events GROUP BY state") == [("consumed", len(expected))]
    assert stage.rows("SELECT count(*) FROM runs WHERE status <> 'succeeded'") == [(0,)]
    stage.whole()
