"""The guard at run time: what it refuses in workflow code, and everything that must go on working beside it."""

from __future__ import annotations

import asyncio
import gc
import importlib
import linecache
import logging
import os
import random
import secrets
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
import warnings
import zoneinfo
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4 as taken_before

import pytest

import romulus
from romulus.authoring.refusal import install, refusing
from romulus.authoring.scan import reach
from romulus.core.errors import NondeterminismRefused
from romulus.core.values import Vault
from tests.authoring.runs import begin, ended


@pytest.fixture(autouse=True)
def _guarded() -> Generator[None, None, None]:
    with refusing():
        yield


def in_workflow(call: Callable[[], Any]) -> Any:
    """Return what *call* returns inside a run, or raise what it raises there."""
    seen: list[Any] = []

    async def flow() -> None:
        seen.append(call())

    ended(begin(romulus.workflow(flow)))
    return seen[0]


def in_def_workflow(call: Callable[[], Any]) -> Any:
    """As `in_workflow`, in a workflow of `def`."""
    seen: list[Any] = []

    def flow() -> None:
        seen.append(call())

    ended(begin(romulus.workflow(flow)))
    return seen[0]


def in_nested_loop(call: Callable[[], Any]) -> Any:
    """As `in_workflow`, advanced as a worker does: from a plain callback of another running loop."""

    async def main() -> Any:
        done = asyncio.get_running_loop().create_future()

        def activation() -> None:
            try:
                done.set_result(in_workflow(call))
            except NondeterminismRefused as error:
                done.set_exception(error)

        asyncio.get_running_loop().call_soon(activation)
        return await done

    return asyncio.run(main())


REFUSED: dict[str, list[Callable[[], Any]]] = {
    "open": [lambda: open(__file__), lambda: Path(__file__).read_text(), lambda: os.open(__file__, os.O_RDONLY)],  # noqa: SIM115
    "os.listdir": [lambda: os.listdir(".")],
    "os.remove": [lambda: os.remove("nothing-of-this-name")],
    "tempfile.mkstemp": [lambda: tempfile.mkstemp(dir=".")],
    "sqlite3.connect": [lambda: sqlite3.connect(":memory:")],
    "socket.socket": [lambda: socket.socket()],
    "socket.getaddrinfo": [lambda: socket.getaddrinfo("localhost", 9), lambda: socket.create_connection(("127.0.0.1", 9))],
    "subprocess.Popen": [lambda: subprocess.Popen(["true"]), lambda: subprocess.run(["true"], check=False)],
    "os.system": [lambda: os.system("true")],
    "threading.Thread.start": [lambda: threading.Thread(target=print).start()],
    "time.sleep": [lambda: time.sleep(0)],
    "time.time": [lambda: time.time()],
    "time.time_ns": [lambda: time.time_ns()],
    "random.random": [lambda: random.random()],
    "random.shuffle": [lambda: random.shuffle([1])],
    "random.seed": [lambda: random.seed(1)],
    "uuid.uuid4": [lambda: uuid.uuid4()],
    "uuid.uuid1": [lambda: uuid.uuid1()],
    "os.urandom": [lambda: os.urandom(1), lambda: taken_before()],
    "secrets.token_hex": [lambda: secrets.token_hex()],
    "secrets.choice": [lambda: secrets.choice([1])],
}
CALLS = [pytest.param(name, call, id=f"{name}-{at}") for name, calls in REFUSED.items() for at, call in enumerate(calls)]


@pytest.mark.parametrize(("name", "call"), CALLS)
@pytest.mark.parametrize("where", [in_workflow, in_def_workflow, in_nested_loop])
def test_workflow_code_is_refused_by_name(where: Callable[..., Any], name: str, call: Callable[[], Any]) -> None:
    if name == "tempfile.mkstemp":  # it draws a name first
        name = "random.|os.urandom|tempfile.mkstemp|open"
    with pytest.raises(NondeterminismRefused, match=rf"^({name}) in workflow code \(.*test_refusal.*\): (use|put)"):
        where(call)


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_the_same_call_outside_a_run_is_not_refused(name: str, call: Callable[[], Any]) -> None:
    try:
        result = call()
    except OSError:
        return  # nothing listens there, or no such file: the system said so
    if isinstance(result, socket.socket | sqlite3.Connection) or hasattr(result, "close"):
        result.close()
    if isinstance(result, subprocess.Popen):
        result.wait()
    if isinstance(result, int) and name == "open":
        os.close(result)
    if name == "tempfile.mkstemp":
        os.close(result[0])
        os.unlink(result[1])


def test_the_error_names_the_users_own_place_even_below_a_library() -> None:
    line = in_workflow_that_reads.__code__.co_firstlineno + 1

    with pytest.raises(NondeterminismRefused, match=rf"tests\.authoring\.test_refusal\.in_workflow_that_reads, test_refusal\.py:{line}"):
        in_workflow(in_workflow_that_reads)


def in_workflow_that_reads() -> str:
    return Path(__file__).read_text()


def test_a_refusal_that_the_code_swallows_is_kept_by_the_loop() -> None:
    async def flow() -> None:
        try:
            time.sleep(1)
        except Exception:
            return

    assert "time.sleep" in str(begin(romulus.workflow(flow)).loop.refusal)


def test_a_step_run_by_another_thread_meanwhile_is_not_refused() -> None:
    answers: list[float] = []
    ask, answered = threading.Event(), threading.Event()

    def step() -> None:
        ask.wait()
        answers.append(time.time())
        answered.set()

    thread = threading.Thread(target=step)
    thread.start()

    def activation() -> None:
        ask.set()
        answered.wait()

    in_workflow(activation)
    thread.join()
    assert answers


# What must keep working.


def test_logging_works_in_workflow_code(tmp_path: Path) -> None:
    log = logging.getLogger("tests.refusal")
    handler = logging.FileHandler(tmp_path / "log", delay=True)  # opens its file at the first record
    log.addHandler(handler)
    try:
        in_workflow(lambda: log.warning("hello"))
    finally:
        log.removeHandler(handler)
        handler.close()

    assert "hello" in (tmp_path / "log").read_text()


def test_tracebacks_show_their_source_in_workflow_code() -> None:
    def show() -> str:
        linecache.clearcache()
        try:
            raise ValueError("seen")
        except ValueError:
            return traceback.format_exc()

    assert 'raise ValueError("seen")' in in_workflow(show)


def test_warnings_show_their_source_in_workflow_code() -> None:
    def warn() -> str:
        linecache.clearcache()
        return warnings.formatwarning("be warned", UserWarning, __file__, warn.__code__.co_firstlineno + 2)

    assert "return warnings.formatwarning" in in_workflow(warn)


def test_time_zones_load_in_workflow_code(tmp_path: Path) -> None:
    (tmp_path / "Here").write_bytes(b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 3600, 0, 0) + b"HRE\0")
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(tmp_path)])
    try:
        assert in_workflow(lambda: datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Here")).tzname()) == "HRE"
    finally:
        zoneinfo.reset_tzpath(before)


def test_modules_are_imported_in_workflow_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fresh_for_refusal.py").write_text("import random, time\nVALUE = time.time(), random.random()\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def use() -> Any:
        import fresh_for_refusal  # type: ignore[import-not-found]

        return fresh_for_refusal.VALUE

    importlib.invalidate_caches()
    try:
        assert in_workflow(use)
    finally:
        sys.modules.pop("fresh_for_refusal", None)


def test_the_apps_codec_draws_its_nonces_during_an_activation() -> None:
    class Codec:
        def encode(self, data: bytes) -> bytes:
            return os.urandom(8) + data

        def decode(self, data: bytes) -> bytes:
            return data[8:]

    vault = Vault(Codec(), 100)

    assert in_workflow(lambda: vault.open(vault.seal(b"body", "a value"), "a value")) == b"body"


def test_print_the_runs_own_clock_and_seeded_draws_work_in_workflow_code() -> None:
    def use() -> tuple[Any, ...]:
        print("hello")
        return romulus.now(), romulus.uuid4(), romulus.rng().random(), random.Random(3).random(), uuid.UUID(int=3)

    assert in_workflow(use) == in_workflow(use)


def test_a_finaliser_that_happens_to_run_during_an_activation_is_left_alone() -> None:
    seen: list[float] = []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            seen.append(time.time())

    Garbage()

    in_workflow(lambda: gc.collect())
    assert seen


# Installing.


def test_what_was_replaced_is_put_back_when_the_last_user_leaves() -> None:
    code = (
        "import time, random\nfrom romulus.authoring.refusal import install\nbefore = time.time, random.random\n"
        "first, second = install(), install()\nassert time.time is not before[0]\nfirst()\nfirst()\nassert time.time is not before[0]\n"
        "second()\nassert (time.time, random.random) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_replacement_by_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import time\nfrom romulus.authoring.refusal import install\nremove = install()\ntime.time = mine = lambda: 0.0\nremove()\n"
        "assert time.time is mine\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_scan_knows_a_function_that_is_replaced_meanwhile() -> None:
    async def flow() -> None:
        time.sleep(1)
        random.random()

    with_both = install()
    refusals = reach(romulus.workflow(flow).spec).refusals
    with_both()

    assert [each.call for each in refusals] == ["time.sleep", "random.random"]
