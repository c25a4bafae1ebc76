"""Act one: a worker is killed in the middle of its steps, and another one goes on from the record."""

from __future__ import annotations

from dataclasses import dataclass

from romulus.cli.output import say
from romulus.client import AsyncHandle, JournalEntry
from romulus.core.machine import RunStatus

from .shop import Order, Receipt, fulfil, orders
from .stage import Effect, Stage

RECORDED_MIN, UNDER_WAY_MIN = 7, 3  # what the record and the first worker must have when it is killed


@dataclass(slots=True)
class AtTheKill:
    """What stood when the first worker died."""

    recorded: dict[str, list[JournalEntry]]  # by run
    under_way: list[Effect]
    pid: int


async def play(stage: Stage) -> None:
    """Play it and check it."""
    say("Act 1. kill -9 in the middle of a step")
    day = orders()
    handles = [await stage.client.start(fulfil.options(id=f"order-{order.id}"), order) for order in day]
    say(f"    {len(handles)} orders started: {', '.join(handle.id for handle in handles)}")
    killed = await _killed(stage, handles)
    second = stage.worker()
    await stage.until("the orders are fulfilled", lambda: _fulfilled(stage, handles))
    say("")
    await _check(stage, day, handles, killed)
    stage.check(second.stop() == 0, f"{second.name} stopped gracefully with exit code 0")


async def _killed(stage: Stage, handles: list[AsyncHandle[Receipt]]) -> AtTheKill:
    first = stage.worker()

    async def in_the_middle() -> bool:
        recorded = sum([len(await stage.tell(handle.id)) for handle in handles])
        return recorded >= RECORDED_MIN and len(stage.under_way()) >= UNDER_WAY_MIN

    await stage.until("steps are recorded and others are under way", in_the_middle)
    first.kill()
    recorded = {handle.id: await stage.tell(handle.id) for handle in handles}
    under_way = [e for e in stage.under_way() if not _is_recorded(e, recorded[e.run])]
    say(f"    {first.name} killed with SIGKILL; under way in it: {', '.join(f'{e.step} #{e.seq} of {e.run}' for e in under_way)}")
    return AtTheKill(recorded, under_way, first.pid)


async def _fulfilled(stage: Stage, handles: list[AsyncHandle[Receipt]]) -> bool:
    for handle in handles:
        await stage.tell(handle.id)
    return all([(await handle.describe()).status is RunStatus.SUCCEEDED for handle in handles])


async def _check(stage: Stage, day: list[Order], handles: list[AsyncHandle[Receipt]], killed: AtTheKill) -> None:
    effects = stage.effects()
    journals = {handle.id: await handle.history() for handle in handles}
    stage.check(bool(killed.under_way), f"{len(killed.under_way)} attempts were in the middle of their bodies when the worker was killed")
    _check_prefix(stage, journals, killed)
    _check_committed(stage, effects, killed)
    _check_lost(stage, journals, killed)
    _check_each_step(stage, journals, effects)
    receipts = [await handle.result() for handle in handles]
    stage.check([r.cents for r in receipts] == [sum(x.cents * x.count for x in o.lines) for o in day], "every receipt adds up")


def _check_prefix(stage: Stage, journals: dict[str, list[JournalEntry]], killed: AtTheKill) -> None:
    same = all(journals[run][: len(entries)] == entries for run, entries in killed.recorded.items())
    count = sum(map(len, killed.recorded.values()))
    stage.check(same, f"the {count} outcomes recorded before the kill stand unchanged, byte for byte, under the first worker's fences")


def _check_committed(stage: Stage, effects: list[Effect], killed: AtTheKill) -> None:
    again = [
        e for e in effects if e.what == "begin" and e.pid != killed.pid and _is_recorded(e, killed.recorded[e.run], any_attempt=True)
    ]  # fmt: skip
    count = sum(entry.kind == "step" for entries in killed.recorded.values() for entry in entries)
    stage.check(not again, f"none of the {count} steps committed before the kill ran again: their bodies wrote nothing after it")


def _check_lost(stage: Stage, journals: dict[str, list[JournalEntry]], killed: AtTheKill) -> None:
    recorded = [next((x for x in journals[e.run] if x.kind == "step" and x.seq == e.seq), None) for e in killed.under_way]
    pairs = zip(recorded, killed.under_way, strict=True)
    again = [entry is not None and entry.attempt > e.attempt and entry.fence > e.fence for entry, e in pairs]
    stage.check(all(again), "each attempt lost with the worker was made again under a higher attempt number and a higher fence")


def _check_each_step(stage: Stage, journals: dict[str, list[JournalEntry]], effects: list[Effect]) -> None:
    odd: list[str] = []
    for run, entries in journals.items():
        steps = [entry for entry in entries if entry.kind == "step"]
        for entry in steps:
            begun = [e.attempt for e in effects if (e.run, e.seq, e.what) == (run, entry.seq, "begin")]
            if begun != list(range(1, entry.attempt + 1)) or [x.seq for x in steps].count(entry.seq) != 1:
                odd.append(f"{entry.name} #{entry.seq} of {run}")
    claim = "each step is recorded once, by the last of its attempts, and no body began twice under one attempt number"
    stage.check(not odd, claim + (f" (odd: {', '.join(odd)})" if odd else ""))


def _is_recorded(effect: Effect, entries: list[JournalEntry], *, any_attempt: bool = False) -> bool:
    return any(x.kind == "step" and x.seq == effect.seq and (any_attempt or x.attempt == effect.attempt) for x in entries)
