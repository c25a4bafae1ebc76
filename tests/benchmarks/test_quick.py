"""The benchmarks run, all of them, and give every row. What they measure is not looked at: a test asserts no timing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.catalogue import ALL
from benchmarks.plan import QUICK
from benchmarks.report import figures_of
from tests.repo.files import ROOT


@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_quick_mode_measures_every_figure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    results, databases = tmp_path / "results.json", tmp_path / "databases"
    databases.mkdir()
    command = [sys.executable, "-m", "benchmarks", "--quick", "--runs", "1", "--json", str(results), "--directory", str(databases)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    figures = json.loads(results.read_text(encoding="utf-8"))["figures"]
    assert (done.returncode, [row["key"] for row in figures if not row["samples"]]) == (0, []), done.stdout + done.stderr
    assert [row["key"] for row in figures] == [figure.key for figure in figures_of(ALL, QUICK)]
    assert all(f"| {figure.key} " in done.stdout for figure in figures_of(ALL, QUICK))
    assert list(databases.iterdir()) == []
