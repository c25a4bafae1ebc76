"""Every order in which the statements of several connections can follow one another: each is run, one after another, from the start.

A side is a process with a store of its own, on a thread of its own, which stops before each of its statements until the schedule lets it
go on. One that waits for a lock in the database is passed by until it has it. So each order that PostgreSQL allows comes up once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from romulus.store.postgres import PostgresStore, place_of
from tests.postgres.kit import Died
from tests.postgres.server import Database
from tests.store.kit import MovableHost

WAITING = (
    "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
    "WHERE NOT l.granted AND a.datname = current_database()"
)
# What reads and writes what others see. A matcher's statements after the lock of its queue are one stop: others of the queue wait for it.
STOPS = frozenset({
    "apply", "claim.look", "claim.queue", "claim.take", "claim.woken", "match.head", "match.pair", "postgres.commit", "send.delivered",
    "send.events", "wakes.dealt", "wakes.sleeping", "wakes.take", "wakes.wake",
})  # fmt: skip
Act = Callable[[PostgresStore], Awaitable[object]]


class Side:
    """A process of its own."""

    def __init__(self, url: str, changed: threading.Condition) -> None:
        self._changed, self._go = changed, threading.Semaphore(0)
        self.stops = 0  # statements it has come to
        self.still, self.done, self.dies_at = True, True, -1
        self.error: BaseException | None = None
        self._scheduled = False
        self._loop = asyncio.new_event_loop()
        self.host = MovableHost(self._loop)
        self.host.at_point = self._at_point
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.store = PostgresStore(place_of(url), self.host)
        self.call(self.store.open())

    def call(self, awaitable: Any) -> Any:
        """Await something on the side's loop, without a stop."""
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def begin(self, act: Act, dies_at: int) -> None:
        """Begin *act*, which is lost at the statement of that number."""
        self.stops, self.still, self.done, self.error, self.dies_at, self._scheduled = 0, False, False, None, dies_at, True
        asyncio.run_coroutine_threadsafe(self._run(act), self._loop)

    def go_on(self) -> None:
        """Execute the statement it stands before."""
        self.still = False
        self._go.release()

    def close(self) -> None:
        self.call(self.store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.host.close()

    async def _run(self, act: Act) -> None:
        try:
            with suppress(Died):
                await act(self.store)
        except BaseException as error:
            self.error = error
        self._scheduled = False
        with self._changed:
            self.done = self.still = True
            self._changed.notify_all()

    def _at_point(self, name: str) -> None:
        if not self._scheduled or name not in STOPS:
            return
        self.stops += 1
        if self.stops == self.dies_at:
            raise Died(name)
        with self._changed:
            self.still = True
            self._changed.notify_all()
        self._go.acquire()


def releases(held: psycopg.Connection[Any]) -> Act:
    """Return what a side does that holds locks from before the others begin: it lets them go, at any time."""

    async def act(store: PostgresStore) -> None:
        store._host.crash_point("apply")
        held.execute("COMMIT")
        held.close()

    return act


class Schedules:
    """Runs every schedule of a story."""

    def __init__(self, database: Database, sides: int) -> None:
        self._connection = database.server.connect(database.name)
        self._changed = threading.Condition()
        self.sides = [Side(database.url, self._changed) for _ in range(sides)]
        self.run = 0  # schedules so far
        self.stops: list[int] = [0] * sides  # the most statements that each side has come to

    def every(self, story: Callable[[int], tuple[Sequence[Act], Callable[[], None]]], lost: tuple[int, int] | None = None) -> None:
        """Run *story* in every order. *lost*: the side that dies, and the number of the statement it comes to last."""
        chosen: list[tuple[int, list[int]]] = []  # what was let go on, and what else could have been
        while True:
            acts, check = story(self.run)
            self._one(acts, chosen, lost)
            try:
                check()
            except AssertionError as error:
                error.add_note(f"schedule {[pick for pick, _ in chosen]}, lost: {lost}")
                raise
            self.run += 1
            while chosen and not chosen[-1][1]:
                chosen.pop()
            if not chosen:
                return
            _, others = chosen.pop()
            chosen.append((others[0], others[1:]))

    def close(self) -> None:
        for side in self.sides:
            side.close()
        self._connection.close()

    def _one(self, acts: Sequence[Act], chosen: list[tuple[int, list[int]]], lost: tuple[int, int] | None) -> None:
        for number, (side, act) in enumerate(zip(self.sides, acts, strict=True)):
            side.begin(act, lost[1] if lost is not None and lost[0] == number else -1)
        step = 0
        while able := self._able():
            if step == len(chosen):
                chosen.append((able[0], able[1:]))
            pick = chosen[step][0]
            self.sides[pick if pick in able else able[0]].go_on()
            step += 1
        del chosen[step:]
        for number, side in enumerate(self.sides):
            self.stops[number] = max(self.stops[number], side.stops)
            if side.error is not None:
                raise AssertionError(f"side {number} of schedule {[pick for pick, _ in chosen]}") from side.error

    def _able(self) -> list[int]:
        """Return which sides can go on, once all that run have come to a stop, to their end, or to a lock that one of these can release."""
        while True:
            with self._changed:
                running = [side for side in self.sides if not side.still]
                able = [number for number, side in enumerate(self.sides) if side.still and not side.done]
                if not running or (able and self._connection.execute(WAITING).fetchall() == [(len(running),)]):
                    return able
                self._changed.wait(0.001)


@contextmanager
def schedules(database: Database, sides: int) -> Iterator[Schedules]:
    """Give the sides of a story."""
    made = Schedules(database, sides)
    try:
        yield made
    finally:
        made.close()
