"""Random programs: a replay of any prefix asks for the same and goes on the same, and an instance can be dropped anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from romulus.core.instance import current
from tests.core.rig import Rig, replay, step

ENTRIES_MAX = 60


@dataclass(frozen=True)
class Node:
    """One construct of a program: `kind` with a number and what is inside."""

    kind: str
    n: int
    inside: tuple[Node, ...] = ()


@step
def work(n: int) -> int:
    return n


@step
def fail(n: int) -> int:
    raise ValueError(str(n))


LEAVES = st.builds(Node, st.sampled_from(["work", "work", "fail", "sleep", "sleep0", "draw"]), st.integers(0, 6))
KINDS = ["row", "gather", "gather all", "group", "timeout", "wait_for", "first", "as_completed", "shield", "finally", "cancel", "generate"]


def _branches(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.builds(Node, st.sampled_from(KINDS), st.integers(0, 6), st.lists(inner, min_size=1, max_size=4).map(tuple))


PROGRAMS = st.recursive(LEAVES, _branches, max_leaves=14)


async def run(node: Node, log: list[str]) -> None:
    try:
        await BUILT[node.kind](node, log)
        log.append(f"{node.kind} {node.n}")
    except (ValueError, TimeoutError, ExceptionGroup) as error:
        log.append(f"{node.kind} {node.n} raised {type(error).__name__}")
        if node.n % 2:
            raise


def _all(node: Node, log: list[str]) -> list[Any]:
    return [run(each, log) for each in node.inside]


async def _row(node: Node, log: list[str]) -> None:
    for each in node.inside:
        await run(each, log)


async def _gather(node: Node, log: list[str]) -> None:
    await asyncio.gather(*_all(node, log))


async def _gather_all(node: Node, log: list[str]) -> None:
    await asyncio.gather(*_all(node, log), return_exceptions=True)


async def _group(node: Node, log: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in node.inside:
            group.create_task(run(each, log))


async def _timeout(node: Node, log: list[str]) -> None:
    async with asyncio.timeout(node.n):
        await _row(node, log)


async def _wait_for(node: Node, log: list[str]) -> None:
    await asyncio.wait_for(_row(node, log), node.n)


async def _first(node: Node, log: list[str]) -> None:
    done, pending = await asyncio.wait([asyncio.ensure_future(each) for each in _all(node, log)], return_when="FIRST_COMPLETED")
    log.append(f"{len(done)} done")
    for task in pending:
        task.cancel()
    for task in done:
        task.exception()


async def _as_completed(node: Node, log: list[str]) -> None:
    for each in asyncio.as_completed({asyncio.ensure_future(each) for each in _all(node, log)}):
        await each


async def _shield(node: Node, log: list[str]) -> None:
    await asyncio.shield(_row(node, log))


async def _finally(node: Node, log: list[str]) -> None:
    try:
        await run(node.inside[0], log)
    finally:
        for each in node.inside[1:]:
            await run(each, log)


async def _cancel(node: Node, log: list[str]) -> None:
    task = asyncio.ensure_future(_row(node, log))
    await (work(node.n) if node.n % 2 else asyncio.sleep(node.n))
    task.cancel()


async def _generate(node: Node, log: list[str]) -> None:
    async def outcomes() -> Any:
        for each in node.inside:
            await run(each, log)
            yield each.n

    async for n in outcomes():
        if n == node.n:
            break


async def _draw(node: Node, log: list[str]) -> None:
    instance = current()
    assert instance is not None
    log.append(f"{instance.rng().random()} {instance.uuid4()} {asyncio.get_running_loop().time()}")
    await work(instance.rng().randrange(100))


BUILT: dict[str, Callable[[Node, list[str]], Any]] = {
    "work": lambda node, _: work(node.n), "fail": lambda node, _: fail(node.n), "sleep": lambda node, _: asyncio.sleep(node.n),
    "sleep0": lambda *_: asyncio.sleep(0), "draw": _draw, "row": _row, "gather": _gather, "gather all": _gather_all, "group": _group,
    "timeout": _timeout, "wait_for": _wait_for, "first": _first, "as_completed": _as_completed, "shield": _shield, "finally": _finally,
    "cancel": _cancel, "generate": _generate,
}  # fmt: skip


def program(node: Node) -> Callable[[], Any]:
    async def generated() -> list[str]:
        log: list[str] = []
        await run(node, log)
        return log

    return generated


def drive(rig: Rig, cancel_at: int | None) -> None:
    """Go on to the end, or to the bound, by choices that depend on the position alone."""
    while rig.instance.outcome is None and rig.instance.position < ENTRIES_MAX:
        position = rig.instance.position
        if position == cancel_at:
            rig.cancel()
        elif rig.instance.open:
            ready = rig.ready()
            rig.settle(ready[position * 7 % len(ready)])
        else:
            return


@settings(max_examples=150)
@given(PROGRAMS, st.none() | st.integers(0, 12))
def test_a_replay_asks_for_the_same_and_ends_the_same(node: Node, cancel_at: int | None) -> None:
    fn = program(node)
    rig = Rig(fn).start()
    drive(rig, cancel_at)
    rig.trace.append(f"end {rig.instance.outcome}")

    again = replay(rig, fn)

    assert again.trace == rig.trace
    assert list(again.instance.open) == list(rig.instance.open)
    for each in (rig, again):
        each.instance.close()


@settings(max_examples=100)
@given(PROGRAMS, st.integers(0, 20), st.none() | st.integers(0, 12))
def test_a_run_taken_over_anywhere_goes_on_the_same(node: Node, taken_over_at: int, cancel_at: int | None) -> None:
    fn = program(node)
    rig = Rig(fn).start()
    drive(rig, cancel_at)
    prefix = Rig(fn)
    prefix.journal = rig.journal[:taken_over_at]

    again = replay(prefix, fn)
    again.trace.pop()  # its end so far
    drive(again, cancel_at)

    assert again.journal == rig.journal
    assert again.instance.outcome == rig.instance.outcome
    for each in (rig, again):
        each.instance.close()
