"""Workflow code of a user's, good and bad, for the tests of the scan; only ever read, never run."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from time import sleep as nap
from time import time as clock
from typing import Any

import romulus

LIMIT = 5
dice = random.Random(7)


@romulus.step
async def charge(order: str) -> str:
    time.sleep(0)
    return Path(order).read_text() + str(time.time()) + str(random.random())


@romulus.step
def pack(order: str) -> bool:
    with open(order) as file:
        return bool(file.read())


@romulus.step
async def rare(order: str) -> None: ...


@romulus.workflow
async def child(order: str) -> str:
    return await charge(order)


TABLE = {"rare": rare}


async def helper(order: str) -> str:
    return await charge(order)


def sleeps_deep_down() -> None:
    time.sleep(1)


def sleeps_below() -> None:
    sleeps_deep_down()


def logged(fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def wrapper(*args: Any) -> Any:
        print("calling")
        return await fn(*args)

    return wrapper


@logged
async def decorated(order: str) -> Any:
    return await pack.aio(order)


@asynccontextmanager
async def scope(order: str) -> Any:
    time.sleep(1)
    yield order


@functools.lru_cache
def cached() -> float:
    return time.time()


class Door:
    """Has methods named like what is refused, and one that does it."""

    def open(self) -> None: ...

    def sleep(self) -> None: ...

    async def pay(self, order: str) -> str:
        return await charge(order)

    def read(self) -> str:
        with open("x") as file:
            return file.read()

    @staticmethod
    def wait() -> None:
        time.sleep(1)


door = Door()


# Refused: each function with the one name that the scan must give.


async def calls_sleep() -> None:
    time.sleep(1)


async def calls_sleep_with_stars(*seconds: Any) -> None:
    time.sleep(*seconds)


async def calls_sleep_by_another_name() -> None:
    nap(1)


async def calls_sleep_imported_inside() -> None:
    from time import sleep

    sleep(1)


async def calls_sleep_of_a_module_imported_inside() -> None:
    import time as t

    t.sleep(1)


async def calls_sleep_through_a_local() -> None:
    pause = time.sleep
    pause(1)


async def calls_sleep_in_a_lambda() -> Any:
    return lambda: time.sleep(1)


async def calls_sleep_in_an_inner_function() -> None:
    def inner() -> None:
        time.sleep(1)

    inner()


async def calls_sleep_through_an_outer_local() -> None:
    import time as t

    def inner() -> None:
        t.sleep(1)

    inner()


async def calls_sleep_in_an_inner_class() -> None:
    class Inner:
        time.sleep(1)

    Inner()


async def calls_sleep_below() -> None:
    sleeps_below()


async def calls_sleep_in_a_context_manager() -> None:
    async with scope("x"):
        pass


async def calls_sleep_in_a_static_method() -> None:
    Door.wait()


async def calls_sleep_by_a_method_of_a_global() -> None:
    door.wait()


async def calls_clock() -> float:
    return time.time()


async def calls_clock_by_another_name() -> float:
    return clock()


async def calls_clock_in_a_comprehension() -> list[float]:
    return [time.time() for _ in range(3)]


async def calls_clock_cached() -> float:
    return cached()


async def calls_now() -> datetime:
    return datetime.now()


async def calls_now_through_the_module() -> datetime:
    return dt.datetime.now(dt.UTC)


async def calls_now_and_goes_on() -> str:
    return datetime.now().isoformat()


async def calls_utcnow() -> datetime:
    return datetime.utcnow()


async def calls_today() -> date:
    return date.today()


async def calls_random() -> float:
    return random.random()


async def calls_shuffle() -> None:
    random.shuffle([1, 2])


async def calls_a_global_generator() -> float:
    return dice.random()


async def calls_random_unseeded() -> random.Random:
    return random.Random()


async def calls_uuid4() -> uuid.UUID:
    return uuid.uuid4()


async def calls_urandom() -> bytes:
    return os.urandom(8)


async def calls_open() -> None:
    with open("x"):
        pass


async def calls_input() -> str:
    return input("name?")


async def calls_socket() -> socket.socket:
    return socket.socket(socket.AF_INET)


async def calls_run() -> None:
    subprocess.run(["true"])


async def calls_popen_class() -> None:
    subprocess.Popen(["true"])


async def calls_thread() -> None:
    threading.Thread(target=print).start()


async def calls_own_thread_class() -> None:
    class Mine(threading.Thread): ...

    OwnThread().start()


class OwnThread(threading.Thread):
    """A thread by another name."""


async def calls_to_thread() -> None:
    await asyncio.to_thread(print)


async def calls_requests_not_loaded() -> None:
    import requests

    requests.get("https://example.com")


async def calls_system() -> None:
    os.system("true")


# Fine: nothing to refuse.


async def asks_only_for_what_is_the_runs_own(self: Door, time: Any) -> None:
    self.open()
    door.open()
    door.sleep()
    Door().open()
    time.sleep(1)
    await asyncio.sleep(1)
    print(romulus.now(), romulus.uuid4(), romulus.rng().random())


async def mentions_without_calling() -> list[Any]:
    return [time, time.sleep, time.time, open, threading.Thread, datetime, isinstance(1, socket.socket), random]


async def draws_from_a_seed() -> float:
    mine = random.Random(3)
    return mine.random()


async def makes_times_from_values() -> Any:
    return datetime(2026, 1, 1), dt.timedelta(3), datetime.fromtimestamp(0, dt.UTC), time.gmtime(0), uuid.UUID(int=0)


async def rebinds_a_local(first: bool) -> None:
    pause: Any = time.sleep
    if first:
        pause = print
    pause(1)


async def has_a_class_that_reads_in_a_step() -> type:
    return Door


# Reaching.


async def reaches_everything(order: str) -> None:
    await charge(order)
    await helper(order)
    await decorated(order)
    await door.pay(order)
    await child(order)
    await TABLE["rare"](order)
