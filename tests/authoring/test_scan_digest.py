"""The digest of workflow code: the same for the same code everywhere, another one for code that may behave otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from romulus.authoring.scan import reach

SOURCE = """
import romulus
import os

LIMIT = 5
KINDS = frozenset({"a", "b", "c", "d"})

@romulus.step
async def charge(order: str, cents: int = 100) -> str:
    return order

def chosen(order: str) -> bool:
    return order in {"x", "y", "z", "w"} or order in KINDS

@romulus.workflow
async def checkout(order: str, times: int = 3) -> str:
    \"\"\"Sell it.\"\"\"
    for at in range(times):
        if at < LIMIT and chosen(order):
            await charge(order, at)
    print(os.name, __file__)
    return order
"""


def digest(source: str, file: str = "shop.py") -> str:
    """Return the digest of `checkout` in a module of that source."""
    module = ModuleType("shop")
    module.__dict__["__file__"] = file
    exec(compile(source, file, "exec"), module.__dict__)
    return reach(module.checkout.spec).digest


def test_a_digest_begins_with_the_minor_version_of_python() -> None:
    assert re.fullmatch(rf"{sys.version_info.major}\.{sys.version_info.minor}:[0-9a-f]{{16}}", digest(SOURCE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import os\n", "import os\n\n# a comment\n\n"),
        ("    return order\n\ndef", "    print('another body')\n    return order + '!'\n\ndef"),
        ("Sell it.", "Sell it well."),
        ('{"x", "y", "z", "w"}', '{"w", "z", "y", "x"}'),
        ("@romulus.step\n", "@romulus.step(timeout=30)\n"),
        ("LIMIT = 5", "LIMIT = 5\nUNUSED = 6\ndef unused(): ..."),
    ],
)
def test_what_changes_no_command_keeps_the_digest(old: str, new: str) -> None:
    assert old in SOURCE
    assert digest(SOURCE.replace(old, new)) == digest(SOURCE)


def test_the_file_a_module_is_in_does_not_count() -> None:
    assert digest(SOURCE, "elsewhere/shop.py") == digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at < LIMIT", "at <= LIMIT"),
        ("LIMIT = 5", "LIMIT = 6"),
        ("times: int = 3", "times: int = 4"),
        ('"w"}', '"v"}'),
        ('"c", "d"}', '"c"}'),
        ("@romulus.step\n", "@romulus.step(name='pay')\n"),
        ("cents: int = 100", "cents: int = 200"),
        ("cents: int", "cents: float"),
        ("await charge(order, at)", "await charge(order, cents=at)"),
        ("return order in", "return order not in"),
        ("@romulus.workflow\n", "@romulus.workflow(version='2')\n"),
    ],
)
def test_what_may_change_a_command_changes_the_digest(old: str, new: str) -> None:
    assert old in SOURCE
    assert digest(SOURCE.replace(old, new)) != digest(SOURCE)


def test_the_digest_is_the_same_in_other_processes_with_other_hash_seeds(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SOURCE)
    code = "import shop\nfrom romulus.authoring.scan import reach\nprint(reach(shop.checkout.spec).digest)"

    def elsewhere(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        return subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True).stdout.strip()

    assert {elsewhere("1"), elsewhere("2"), elsewhere("3")} == {digest(SOURCE)}
