"""The small examples, run as a user would; the quickstart is killed while it sleeps."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import romulus
from tests.repo.files import ROOT
from tests.repo.pages import blocks

pytestmark = pytest.mark.process
PATIENCE_S = 60


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "ROMULUS_STORE": f"sqlite:///{directory / 'runs.db'}", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def program(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=directory, env=environment(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> str:
    """Return what it printed, once it has ended well."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


@contextmanager
def client(directory: Path) -> Iterator[romulus.Client]:
    with romulus.Client(environment(directory)["ROMULUS_STORE"]) as opened:
        yield opened


def test_the_quickstart_killed_in_its_sleep_goes_on_and_charges_once(tmp_path: Path) -> None:
    orders = str(ROOT / "examples" / "orders.py")
    with client(tmp_path) as shop:
        run = shop.start_by_name("checkout", {"order": "42"}, id="checkout-42")
        killed = program(tmp_path, orders)
        next(seen for seen in run.watch() if seen.position == 1 and seen.status == "waiting")
        killed.kill()
        killed.communicate(timeout=PATIENCE_S)
        assert shop.send_event("packed", True, correlation_id="42").duplicate is False

        printed = said(program(tmp_path, orders))

        assert printed.splitlines() == ["to ada@example.com: receipt for 42: 1999", "receipt for 42: 1999"]
        assert [(entry.kind, entry.name, entry.attempt) for entry in run.history()] == [
            ("step", "charge", 1), ("timer", "", 0), ("wait", "packed", 0), ("step", "email", 1),
        ]  # fmt: skip


def test_the_quickstart_is_the_readmes() -> None:
    example = ast.parse((ROOT / "examples" / "orders.py").read_text(encoding="utf-8"))
    readme = ast.parse(blocks(ROOT / "README.md")[0].code)

    assert [ast.dump(node) for node in example.body[1:]] == [ast.dump(node) for node in readme.body]


def test_the_nightly_load_started_twice_loads_once(tmp_path: Path) -> None:
    first = said(program(tmp_path, str(ROOT / "examples" / "etl.py"), "2026-11-29"))
    second = said(program(tmp_path, str(ROOT / "examples" / "etl.py"), "2026-11-29"))

    assert first == second
    assert re.search(r"^customers +261 rows$", first, re.MULTILINE)
    with client(tmp_path) as warehouse:
        assert [run.id for run in warehouse.runs(attributes={"day": "2026-11-29"})] == ["nightly-2026-11-29"]
        assert len(warehouse.runs(workflow="load_table", status=romulus.RunStatus.SUCCEEDED)) == 6


def test_the_shop_in_plain_def_is_paid_through_its_views(tmp_path: Path) -> None:
    worker = program(tmp_path, "-m", "romulus.cli", "worker", "examples.sync_shop:app")
    try:
        assert said(program(tmp_path, "-m", "examples.sync_shop")) == "paid\n"
    finally:
        worker.terminate()
        out, _ = worker.communicate(timeout=PATIENCE_S)
    assert "to ada@example.com: order 7: 436.10 received, 2 articles are yours" in out
