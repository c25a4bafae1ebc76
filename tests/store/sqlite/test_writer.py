"""The writer: in place while that is quick, on its thread otherwise, first come first served; groups of starts and sends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from romulus.core.errors import StoreUnavailable
from romulus.store.grouping import GROUP_MAX, Grouped
from romulus.store.sqlite import place_of
from romulus.store.sqlite.connection import Patience
from romulus.store.sqlite.faults import FileBusy
from romulus.store.sqlite.session import Session
from romulus.store.sqlite.writer import AWAY, QUICK_MAX, Writer
from tests.store.kit import MovableHost

HERE = threading.current_thread


@pytest.fixture
async def writer(tmp_path: Path, host: MovableHost) -> AsyncIterator[Writer]:
    session = Session(place_of(str(tmp_path / "writer.db")), host, 1_000_000)
    yield Writer(session, host, 1_000_000)
    session.close()


async def where(writer: Writer) -> bool:
    """Return whether a piece of work is done in place."""
    return await writer.run(lambda _: threading.current_thread()) is threading.current_thread()


async def test_quick_work_is_done_in_place(writer: Writer) -> None:
    assert [await where(writer) for _ in range(5)] == [True] * 5


async def slow(writer: Writer, host: MovableHost) -> None:
    await writer.run(lambda _: host.advance(QUICK_MAX * 50))


async def test_slow_work_sends_what_follows_to_the_thread_until_one_tries_again(writer: Writer, host: MovableHost) -> None:
    for _ in range(3):
        await slow(writer, host)

    assert [await where(writer) for _ in range(AWAY + 2)] == [False] * AWAY + [True] * 2


async def test_one_slow_piece_among_quick_ones_sends_nothing_to_the_thread(writer: Writer, host: MovableHost) -> None:
    for _ in range(3):
        await slow(writer, host)
        assert [await where(writer) for _ in range(8)] == [True] * 8


async def test_work_that_is_still_slow_when_it_tries_again_goes_back_to_the_thread_at_once(writer: Writer, host: MovableHost) -> None:
    for _ in range(3):
        await slow(writer, host)
    assert [await where(writer) for _ in range(AWAY)] == [False] * AWAY

    await slow(writer, host)

    assert [await where(writer) for _ in range(AWAY + 1)] == [False] * AWAY + [True]


async def test_work_that_finds_the_file_locked_is_done_again_on_the_thread(writer: Writer) -> None:
    tries: list[threading.Thread] = []

    def work(_: Session) -> int:
        tries.append(threading.current_thread())
        if len(tries) == 1:
            raise FileBusy("locked")
        return len(tries)

    assert await writer.run(work) == 2
    assert tries[0] is HERE()
    assert tries[1] is not HERE()
    assert [await where(writer) for _ in range(2)] == [False] * 2, "whoever locked it may do so again"


async def test_work_in_place_gives_up_a_locked_file_at_once_and_the_thread_waits(writer: Writer) -> None:
    limits: list[int] = []

    def work(session: Session) -> None:
        limits.append(session.patience.limit)
        if len(limits) == 1:
            raise FileBusy("locked")

    await writer.run(work)

    assert limits == [0, 1_000_000]


async def test_work_is_done_in_the_order_it_came(writer: Writer) -> None:
    release = await writer.hold()
    done: list[int] = []
    waiting = [asyncio.ensure_future(writer.run(lambda _, n=n: done.append(n))) for n in range(10)]  # type: ignore[misc]
    await asyncio.sleep(0)
    assert done == []

    release()
    await asyncio.gather(*waiting)

    assert done == list(range(10))


async def test_an_error_is_its_callers_and_the_next_goes_on(writer: Writer) -> None:
    def fail(_: Session) -> None:
        raise StoreUnavailable("no")

    release = await writer.hold()
    failing, following = asyncio.ensure_future(writer.run(fail)), asyncio.ensure_future(writer.run(lambda _: 5))
    await asyncio.sleep(0)
    release()

    with pytest.raises(StoreUnavailable):
        await failing
    assert await following == 5


async def test_work_whose_caller_was_cancelled_before_it_began_is_not_done(writer: Writer) -> None:
    release = await writer.hold()
    done: list[int] = []
    cancelled = asyncio.ensure_future(writer.run(lambda _: done.append(1)))
    await asyncio.sleep(0)
    cancelled.cancel()
    release()
    (await writer.hold())()  # everything asked for before is over

    assert done == []


async def test_nobody_glances_at_a_connection_that_is_in_use(writer: Writer) -> None:
    release = await writer.hold()
    assert writer.glance(lambda _: 7) is None
    release()
    assert writer.glance(lambda session: session.patience.limit + 7) == 7, "a glance waits for no lock"


async def test_releasing_twice_lets_one_in(writer: Writer) -> None:
    release = await writer.hold()
    second = asyncio.ensure_future(writer.hold())
    third = asyncio.ensure_future(writer.hold())
    await asyncio.sleep(0)
    release()
    release()
    give_back = await second
    assert not third.done()
    give_back()
    (await third)()


async def test_the_writer_granted_in_the_moment_its_caller_is_cancelled_is_given_back(writer: Writer) -> None:
    release = await writer.hold()
    cancelled = asyncio.ensure_future(writer.hold())
    await asyncio.sleep(0)
    release()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    assert cancelled.cancelled()
    assert await asyncio.wait_for(writer.run(lambda _: 7), 5) == 7


async def test_work_that_the_end_of_its_thread_cut_off_is_cancelled(
    writer: Writer, host: MovableHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off = asyncio.get_running_loop().create_future()
    cut_off.cancel()
    monkeypatch.setattr(host, "offload", lambda lane, work: cut_off)
    release = await writer.hold()
    waiting = asyncio.ensure_future(writer.run(lambda _: 7))
    await asyncio.sleep(0)
    release()

    await asyncio.wait([waiting], timeout=5)
    assert waiting.cancelled()


def test_the_busy_handler_waits_no_longer_than_its_limit(host: MovableHost) -> None:
    patience = Patience(host, 10_000_000)
    assert patience(0)
    host.advance(9_000_000)
    assert patience(1)
    host.advance(1_000_001)
    assert not patience(2)
    assert patience(0)  # another wait begins anew


def test_the_busy_handler_without_patience_gives_up_at_once(host: MovableHost) -> None:
    assert not Patience(host, 0)(0)


async def test_what_gathers_while_a_group_is_written_is_the_next_group(host: MovableHost) -> None:
    groups: list[list[int]] = []
    gate = asyncio.Event()

    async def write(items: Sequence[int]) -> Sequence[int]:
        groups.append(list(items))
        await gate.wait()
        return [item * 10 for item in items]

    grouped: Grouped[int, int] = Grouped(host, write)
    first = [asyncio.ensure_future(grouped.submit([n])) for n in range(3)]
    while not groups:
        await asyncio.sleep(0)
    second = [asyncio.ensure_future(grouped.submit([n, n])) for n in range(3, 5)]
    await asyncio.sleep(0)
    gate.set()

    assert [list(await answer) for answer in (*first, *second)] == [[0], [10], [20], [30, 30], [40, 40]]
    assert groups == [[0, 1, 2], [3, 3, 4, 4]]


async def test_a_group_is_bounded(host: MovableHost) -> None:
    sizes: list[int] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        sizes.append(len(items))
        return items

    grouped: Grouped[int, int] = Grouped(host, write)
    await asyncio.gather(*(grouped.submit([n]) for n in range(GROUP_MAX + 5)))

    assert sizes == [GROUP_MAX, 5]


async def test_one_callers_fault_is_not_anothers(host: MovableHost) -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        if 1 in items:
            raise OverflowError("too much")
        return items

    grouped: Grouped[int, int] = Grouped(host, write)
    answers = await asyncio.gather(*(grouped.submit([n]) for n in range(3)), return_exceptions=True)

    assert (answers[0], answers[2]) == ([0], [2])
    assert isinstance(answers[1], OverflowError)


async def test_a_store_that_is_away_fails_the_whole_group_at_once(host: MovableHost) -> None:
    calls = 0

    async def write(items: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        raise StoreUnavailable("away")

    grouped: Grouped[int, int] = Grouped(host, write)
    answers = await asyncio.gather(*(grouped.submit([n]) for n in range(3)), return_exceptions=True)

    assert calls == 1
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
