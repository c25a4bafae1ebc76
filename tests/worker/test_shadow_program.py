"""The second interpreter as a process, and the programs that ask for one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from romulus.core.instance import RunInfo
from romulus.core.seeds import Seeds
from romulus.worker.shadow.words import Committed, Ready, Target, Turn, Watch, packed, read_frame, unpacked
from tests.worker import shadow_flows as flows

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
PROGRAM = """
import romulus

@romulus.step
async def send(name: str) -> str:
    return name

@romulus.workflow
async def unsorted() -> int:
    for name in {f"name-{n}" for n in range(40)}:
        await send(name)
    return 40

app = romulus.App("sqlite:///here.db", workflows=[unsorted])
"""
RUN = "print('result', app.run(unsorted))\n"


@contextmanager
def interpreter() -> Iterator[subprocess.Popen[bytes]]:
    code = f"import sys; sys.path[:] = {sys.path!r}; from romulus.worker.shadow.interpreter import main; main()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def program(tmp_path: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "shop.py").write_text(text)
    return subprocess.run(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("busy", [False, True])
def test_the_second_interpreter_ends_with_its_parent_even_while_workflow_code_spins(busy: bool) -> None:
    with interpreter() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(packed(Target("tests.worker.shadow_flows", "app")))
        process.stdin.flush()
        ready = unpacked(read_frame(process.stdout.read) or b"")
        assert ready == Ready(flows.app.registry.digests)
        if busy:
            info = RunInfo("r", "spins", "1", datetime.now(UTC), "default", 1)
            process.stdin.write(packed(Watch(1, info, b"{}", Seeds.first("00" * 16).dump(), 0)))
            process.stdin.write(packed(Committed(1, [Turn(None)], [], "")))
            process.stdin.flush()
            read_frame(process.stdout.read)  # the watch is done: the code spins

        process.stdin.close()

        assert process.wait(timeout=30) == 0


def test_a_program_that_runs_a_workflow_is_told_what_differs_before_it_ends(tmp_path: Path) -> None:
    done = program(tmp_path, PROGRAM + 'if __name__ == "__main__":\n    ' + RUN, ROMULUS_DEVELOPMENT="1")

    assert re.search(r"not deterministic.* step 'send' \(command \d+\) with other arguments", done.stderr), done.stderr


def test_a_program_that_would_run_again_when_imported_is_told_so_and_runs_once(tmp_path: Path) -> None:
    done = program(tmp_path, PROGRAM + RUN, ROMULUS_DEVELOPMENT="1")

    assert done.stdout == "result 40\n", done.stderr
    assert done.stderr.count("second interpreter cannot import") == 1
    assert 'under `if __name__ == "__main__":`' in done.stderr


def test_without_the_setting_there_is_no_second_interpreter(tmp_path: Path) -> None:
    done = program(tmp_path, PROGRAM + 'if __name__ == "__main__":\n    ' + RUN)

    assert (done.returncode, done.stdout) == (0, "result 40\n")
    assert "interpreter" not in done.stderr


def test_a_worker_from_the_command_line_compares_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    romulus = [sys.executable, "-m", "romulus.cli"]
    quiet = {"cwd": tmp_path, "timeout": 60, "check": True, "capture_output": True}
    subprocess.run([*romulus, "runs", "start", "unsorted", "--id", "r", "--store", "sqlite:///here.db"], **quiet)  # type: ignore[call-overload]
    with subprocess.Popen(
        [*romulus, "worker", "shop:app", "--development"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as worker:  # fmt: skip
        try:
            assert worker.stderr is not None
            assert any("not deterministic" in line for line in worker.stderr)
        finally:
            worker.kill()
