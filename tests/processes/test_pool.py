"""The pool that def steps run in: bounded, reuses its threads, and never keeps a process from ending."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from romulus.host.pool import DaemonPool

HANGS = """
import threading
from romulus.host.pool import DaemonPool
began = threading.Event()
pool = DaemonPool(2, "test")
pool.submit(lambda: (began.set(), threading.Event().wait()))
began.wait()
pool.shutdown(wait=False)
print("ends")
"""


def test_calls_run_on_at_most_so_many_threads_and_all_end() -> None:
    pool = DaemonPool(3, "few")
    seen: set[str] = set()
    futures = [pool.submit(lambda n=n: (seen.add(threading.current_thread().name), n)[1]) for n in range(200)]
    assert [future.result(10) for future in futures] == list(range(200))
    assert seen <= {"few_0", "few_1", "few_2"}
    pool.shutdown(wait=True)
    assert not any(thread.name in seen for thread in threading.enumerate())


def test_as_many_calls_as_threads_are_under_way_at_once() -> None:
    pool = DaemonPool(4, "full")
    together = threading.Barrier(4)
    for _ in range(3):
        assert sorted(f.result(10) for f in [pool.submit(together.wait, 10) for _ in range(4)]) == [0, 1, 2, 3]
    pool.shutdown()


def test_an_idle_thread_is_used_again() -> None:
    pool = DaemonPool(8, "idle")
    names = {pool.submit(lambda: threading.current_thread().name).result(10) for _ in range(3)}
    assert names <= {"idle_0", "idle_1", "idle_2"}
    pool.shutdown()


def test_what_a_call_raises_is_its_futures_exception() -> None:
    pool = DaemonPool(1, "raises")
    for error in (KeyError("x"), SystemExit(3)):
        with pytest.raises(type(error)):
            pool.submit(_raise, error).result(10)
    assert pool.submit(lambda: "the thread lives").result(10) == "the thread lives"
    pool.shutdown()


def test_closing_cancels_what_has_not_begun_and_refuses_more() -> None:
    pool = DaemonPool(1, "closed")
    began, gate = threading.Event(), threading.Event()
    running = pool.submit(lambda: (began.set(), gate.wait(10))[1])
    waiting = [pool.submit(lambda: None) for _ in range(3)]
    assert began.wait(10)
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    assert running.result(10) is True
    assert all(future.cancelled() for future in waiting)
    with pytest.raises(RuntimeError):
        pool.submit(lambda: None)
    pool.shutdown()


def test_a_thread_that_never_ends_does_not_keep_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")


def _raise(error: BaseException) -> None:
    raise error
