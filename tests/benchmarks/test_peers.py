"""The peers' result lines beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.figure import Figure, PeerField
from benchmarks.report import number

RATE = Figure("W1", "runs at once", "steps/s", peer=PeerField("W1", "steps_s"))
LONG = Figure("W5.10000", "killed", "s", peer=PeerField("W5", "launch_to_step_s", ("steps", 10_000)))


def lines(tmp_path: Path, *text: str) -> Path:
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(text), encoding="utf-8")
    return file


def test_a_peer_stands_beside_ours_with_the_median_of_its_lines(tmp_path: Path) -> None:
    read = peers.read(lines(tmp_path, *(f'{{"peer": "other", "w": "W1", "steps_s": {rate}}}' for rate in (100, 900, 300))))

    assert peers.table([RATE], {"W1": 5_000.0}, read, number) == [["W1", "runs at once", "steps/s", "5,000", "300"]]


def test_only_lines_of_the_same_size_are_compared(tmp_path: Path) -> None:
    short = '{"peer": "other", "w": "W5", "steps": 1000, "launch_to_step_s": 1}'
    long = '{"peer": "other", "w": "W5", "steps": 10000, "launch_to_step_s": 9}'
    read = peers.read(lines(tmp_path, short, long))

    assert read.value("other", LONG.peer or PeerField("", "")) == 9


def test_the_table_names_the_run_the_peers_come_from(tmp_path: Path) -> None:
    read = peers.read(lines(tmp_path, '{"peer": "other", "w": "W1", "steps_s": 1}'))

    assert read.source.startswith("results.jsonl, written ")


def test_figures_that_no_peer_has_are_left_out(tmp_path: Path) -> None:
    read = peers.read(lines(tmp_path, '{"peer": "other", "w": "W9", "steps_s": 1}'))

    assert peers.table([RATE], {"W1": 5_000.0}, read, number) == []


def test_a_line_without_peer_and_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 2"):
        peers.read(lines(tmp_path, '{"peer": "other", "w": "W1"}', '{"steps_s": 3}'))
