"""The order of a run is the program's: not of addresses, hash seeds or garbage collection, on each Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).with_name("programs.py")
NEEDED = ("pydantic>=2.12", "greenlet>=3.1", "typing-extensions>=4.13")
CHANCES = [  # PYTHONHASHSEED, thresholds of the collector, other runs in the process
    (hash_seed, threshold, neighbours)
    for hash_seed in ("0", "1", "4242")
    for threshold, neighbours in (("700,10,10", "0"), ("1,1,1", "0"), ("37,3,2", "7"), ("0,0,0", "3"))
]


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of that version that can import the core."""
    version: str = request.param
    if version == ".".join(map(str, sys.version_info[:2])):
        return Path(sys.executable)
    found = _installed(version)
    if found is None:
        pytest.skip(f"no Python {version} on this machine")
    return _with_packages(found, tmp_path_factory.mktemp(f"python{version}") / "venv")


def test_commands_and_outcomes_come_in_the_same_order_whatever_the_hash_seed_and_the_garbage_collector(python: Path) -> None:
    first = _traces(python, *CHANCES[0])
    for chance in CHANCES[1:]:
        assert _traces(python, *chance) == first, chance
    assert len(first) >= 40
    assert any("withdraw" in line for trace in first.values() for line in trace)


def _traces(python: Path, hash_seed: str, threshold: str, neighbours: str) -> dict[str, list[str]]:
    path = os.pathsep.join((str(ROOT / "packages/romulus/src"), str(ROOT)))
    environment = {"PYTHONPATH": path, "PYTHONHASHSEED": hash_seed, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, PROGRAMS, threshold, neighbours], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    traces: dict[str, list[str]] = json.loads(done.stdout)
    return traces


def _installed(version: str) -> Path | None:
    """Find one by uv, else among pyenv's."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    asked = subprocess.run([uv, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return Path(asked.stdout.strip())
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return next(iter(sorted(pyenv.glob(f"versions/{version}*/bin/python"))), None)


def _with_packages(python: Path, venv: Path) -> Path:
    for command in (["venv", "-q", "-p", str(python), str(venv)], ["pip", "install", "-q", "-p", str(venv), *NEEDED]):
        done = subprocess.run(["uv", *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot make an environment for {python}: {done.stderr.strip()[-300:]}")
    return venv / "bin" / "python"
