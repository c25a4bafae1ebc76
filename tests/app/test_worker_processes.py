"""Worker processes: stop gracefully on a signal, several at once, restarted when one dies, gone with their supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import romulus
from romulus import WorkerRecord
from romulus.app.supervisor import locate

from .programs import DEAF, WORKERS, running, until, written

pytestmark = pytest.mark.process


def _live(client: romulus.Client) -> dict[int, WorkerRecord]:
    return {worker.pid: worker for worker in client.workers() if worker.status == "live"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_worker_stops_gracefully_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    program = written(tmp_path, "work.py", WORKERS.replace("{processes}", "1"))
    with romulus.Client(f"sqlite:///{tmp_path / 'work.db'}") as client, running(program) as process:
        handle = client.start_by_name("nap", {"seconds": 0.1})
        assert handle.result(timeout=40) == 0.1
        process.send_signal(number)
        _, err = process.communicate(timeout=40)

        assert process.returncode == 0, err
        assert len(client.workers()) == 0


@pytest.mark.parametrize("swallowed", ["asyncio.CancelledError", "BaseException"])
def test_a_body_that_swallows_its_cancellation_does_not_keep_the_process(
    tmp_path: Path, swallowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("ROMULUS_GRACE", "0.1")
    program = written(tmp_path, "work.py", DEAF.replace("{swallowed}", swallowed))
    with romulus.Client(f"sqlite:///{tmp_path / 'work.db'}") as client, running(program) as process:
        handle = client.start_by_name("listen", {})
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=40)

        assert process.returncode == 0, err
        assert "the process ends without it" in err
        assert len(client.workers()) == 0
        assert handle.describe().status == "pending"  # nobody has it, and it goes on elsewhere


def test_a_worker_that_dies_is_replaced_and_all_stop_together(tmp_path: Path) -> None:
    program = written(tmp_path, "work.py", WORKERS.replace("{processes}", "2"))
    with romulus.Client(f"sqlite:///{tmp_path / 'work.db'}") as client, running(program) as supervisor:
        until(lambda: len(_live(client)) == 2)
        first = min(_live(client))
        os.kill(first, signal.SIGKILL)
        until(lambda: len(_live(client).keys() - {first}) == 2)  # one look: in a second one the killed may be gone without a successor
        pids = set(_live(client))
        assert supervisor.pid not in pids

        supervisor.send_signal(signal.SIGTERM)
        _, err = supervisor.communicate(timeout=40)

        assert supervisor.returncode == 0, err
        assert "another starts in" in err
        assert not any(_alive(pid) for pid in pids)
        assert not _live(client)


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    program = written(tmp_path, "work.py", WORKERS.replace("{processes}", "2"))
    with romulus.Client(f"sqlite:///{tmp_path / 'work.db'}") as client, running(program) as supervisor:
        until(lambda: len(_live(client)) == 2)
        pids = set(_live(client))
        supervisor.kill()

        until(lambda: not any(_alive(pid) for pid in pids))


def test_several_processes_need_an_app_that_they_can_import(tmp_path: Path) -> None:
    hidden = romulus.App(f"sqlite:///{tmp_path / 'x.db'}", workflows=[])
    with pytest.raises(romulus.ConfigurationError, match="must be a variable of a module"):
        hidden.run_worker(processes=2)
    for count in (0, -1, True, 1_000):
        with pytest.raises(romulus.ConfigurationError, match="processes is"):
            hidden.run_worker(processes=count)


def test_an_app_is_found_by_the_module_that_holds_it() -> None:
    module, attribute = locate(os.sep)
    assert getattr(__import__(module, fromlist=["x"]), attribute) is os.sep


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if Path("/proc").exists() else True
