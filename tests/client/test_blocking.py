"""The blocking client is the asyncio client: the same methods, the same signatures, one portal, no second copy."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from romulus import AsyncClient, AsyncHandle, Client, Handle, RunConflict, RunStatus

from .world import app_at, total, waits_for

NAMES = (("AsyncClient", "Client"), ("AsyncHandle", "Handle"), ("AsyncIterator", "Iterator"))


def _public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def _blocking(text: str) -> str:
    for here, there in NAMES:
        text = text.replace(here, there)
    return text


@pytest.mark.parametrize(("asyncio_class", "blocking_class"), [(AsyncClient, Client), (AsyncHandle, Handle)])
def test_both_classes_have_the_same_methods_with_the_same_signatures(asyncio_class: type, blocking_class: type) -> None:
    ours, theirs = _public(blocking_class), _public(asyncio_class)

    assert sorted(ours) == sorted(theirs)
    for name, method in theirs.items():
        assert str(inspect.signature(ours[name])) == _blocking(str(inspect.signature(method))), name
    assert inspect.signature(blocking_class).parameters.keys() >= {"store", "namespace"} or blocking_class is Handle


def test_work_done_without_an_event_loop(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    with Client(app) as client:
        handle = client.start(total.options(id="t"), 1)
        with pytest.raises(RunConflict):
            client.start(total.options(id="t"), 5)
        assert [run.status for run in client.runs()] == [RunStatus.PENDING]
        assert client.send_event("go", 1, correlation_id="w").duplicate is False
        assert handle.cancel() == "accepted"
        assert [run.status for run in handle.watch()] == [RunStatus.CANCELLED]
        handle.retry()
        assert handle.fork(0).id == "t~1"
        assert app.run(total.options(id="t"), 1) == 3
        assert handle.result(timeout=30) == 3
        assert client.get("t", total).history() == handle.history()


def test_many_threads_share_one_client(tmp_path: Path) -> None:
    with Client(app_at(tmp_path)) as client:
        threads = [threading.Thread(target=client.start, args=(total.options(id=f"r{n}"), n)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert {run.id for run in client.runs()} == {f"r{n}" for n in range(20)}
        assert sum(thread.name == "romulus-client" for thread in threading.enumerate()) == 1


def test_closing_ends_the_thread_and_may_be_done_twice(tmp_path: Path) -> None:
    client = Client(app_at(tmp_path))
    client.start(waits_for, "go")
    client.close()
    client.close()

    assert not [thread for thread in threading.enumerate() if thread.name == "romulus-client"]


@pytest.mark.parametrize(
    "use",
    [
        "print(len({client}.runs()))",
        "kept = {client}; print(len(kept.runs()))",
        "kept = {client}; print(len(kept.runs())); kept.start_by_name('w', id='r'); seen = kept.get('r').watch(); next(seen)",
    ],
    ids=["a client nobody keeps", "a client of the module", "a watch that was left"],
)
def test_a_client_that_is_never_closed_does_not_keep_the_process(tmp_path: Path, use: str) -> None:
    program = "import romulus; " + use.format(client=f"romulus.Client('sqlite:///{tmp_path / 'x.db'}')")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"
