"""What needs processes of its own: finding the App, a worker that stops gracefully, and the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import romulus
from tests.app.programs import until

from .terminal import ORDERS, romulus_here, romulus_process

pytestmark = pytest.mark.process

TARGETS = [
    ("orders", "write MODULE:APP"),
    (":app", "write MODULE:APP"),
    ("nothing_there:app", "there is no module 'nothing_there'"),
    ("orders.py:app", "did you mean orders:…?"),
    ("orders:nothing", "module 'orders' has no 'nothing'; it has the App app"),
    ("orders:not_an_app", "is a int, not a romulus.App"),
    ("needs:app", "No module named 'not_installed'"),
    ("broken:app", "SyntaxError"),
    ("raises:app", "ZeroDivisionError"),
    ("leaves:app", "SystemExit"),
    ("clash:app", "two workflows are named 'w'"),
]
CLASH = """
import romulus
@romulus.workflow(name="w")
async def a() -> None: ...
@romulus.workflow(name="w")
async def b() -> None: ...
app = romulus.App(workflows=[a, b])
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    programs = {
        "orders": ORDERS, "needs": "import not_installed", "broken": "def (", "raises": "1/0", "leaves": "raise SystemExit(7)",
        "clash": CLASH,
    }  # fmt: skip
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("target", "said"), TARGETS)
def test_an_app_that_cannot_be_found_is_one_clear_error(here: Path, target: str, said: str) -> None:
    answer = romulus_process("worker", target, cwd=here)

    assert (answer.code, answer.out) == (2, ""), answer
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert answer.err.startswith("romulus: ")


def test_the_workers_store_is_the_options(here: Path) -> None:
    url = f"sqlite:///{here / 'named.db'}"
    worker = subprocess.Popen([sys.executable, "-m", "romulus.cli", "worker", "orders:app", "--store", url, "--concurrency", "3"], cwd=here)
    try:
        with romulus.Client(url) as client:
            started = romulus_process("runs", "start", "checkout", '{"order": "42"}', "--store", url, cwd=here)
            romulus_process("events", "send", "packed", "true", "--correlation-id", "42", "--store", url, cwd=here)
            assert client.get(started.out.strip()).result(timeout=40) == "receipt for 42"
            assert [one.concurrency for one in client.workers()] == [3]
            assert romulus_here("workers", "--store", url, "--json").json["items"][0]["status"] == "live"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(40) == 0
            assert len(client.workers()) == 0
    finally:
        worker.kill()
        worker.wait()


def test_a_setting_that_is_wrong_stops_a_worker_before_it_starts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMULUS_LEASE", "0.1")
    answer = romulus_process("worker", "orders:app", cwd=here)
    assert (answer.code, "ROMULUS_LEASE" in answer.err) == (2, True)


@pytest.mark.timeout(200)
def test_the_demo_ends_with_every_check_holding(tmp_path: Path) -> None:
    answer = romulus_process("demo", "--keep", str(tmp_path / "kept"), cwd=tmp_path, timeout=180)

    assert answer.code == 0, answer.out + answer.err
    assert "all checks hold" in answer.out
    assert "FAILED" not in answer.out
    assert "refused and kept as evidence: late_transition" in answer.out
    assert (tmp_path / "kept" / "demo.db").exists()
    again = romulus_process("demo", "--keep", str(tmp_path / "kept"), cwd=tmp_path)
    assert (again.code, "give another directory" in again.err) == (1, True)


def test_several_worker_processes_import_the_app_by_its_name(here: Path) -> None:
    url = f"sqlite:///{here / 'many.db'}"
    arguments = ["worker", "orders:app", "--store", url, "--processes", "2"]
    worker = subprocess.Popen([sys.executable, "-m", "romulus.cli", *arguments], cwd=here, start_new_session=True)
    try:
        with romulus.Client(url) as client:
            until(lambda: sum(one.status == "live" for one in client.workers()) == 2)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(40) == 0
            assert len(client.workers()) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
