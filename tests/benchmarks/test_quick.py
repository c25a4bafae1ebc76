"""The benchmarks run, all of them, and give every row. What they measure is not looked at: a test asserts no timing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.catalogue import of_store
from benchmarks.plan import POSTGRES, QUICK, SQLITE
from benchmarks.report import figures_of
from tests.repo.files import ROOT


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory in which a server may work that does so as somebody else."""
    with tempfile.TemporaryDirectory(prefix="romulus-benchmarks-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", [SQLITE, POSTGRES])
def test_the_quick_mode_measures_every_figure_and_leaves_nothing_behind(tmp_path: Path, open_to_all: Path, store: str) -> None:
    results, databases = tmp_path / "results.json", open_to_all
    command = [sys.executable, "-m", "benchmarks", "--quick", "--runs", "1", "--json", str(results), "--directory", str(databases)]
    command += ["--store", store]
    expected = figures_of([benchmark for part in of_store(store) for benchmark in part], replace(QUICK, store=store))

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    figures = json.loads(results.read_text(encoding="utf-8"))["figures"]
    assert (done.returncode, [row["key"] for row in figures if not row["samples"]]) == (0, []), done.stdout + done.stderr
    assert [row["key"] for row in figures] == [figure.key for figure in expected]
    assert all(f"| {figure.key} " in done.stdout for figure in expected)
    assert list(databases.iterdir()) == []
