"""What no committed file may hold: where packages come from, and paths of somebody's machine."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.repo.files import ROOT, committed

REGISTRIES = [
    ".".join(host)
    for host in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("nodejs", "org"), ("golang", "org")]
]
SOURCES = re.compile(
    "|".join(["index" + "-url", "find" + "-links", "default" + "-index", r"\[tool\.uv\." + "index", *map(re.escape, REGISTRIES)])
)
MACHINE = re.compile("(?<![\\w.~}>])/" + "(?:work|root|home|Users|mnt)/" + "[\\w.-]+")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Return where *pattern* is found in the committed text files."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in committed()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(SOURCES) == []


def test_no_file_holds_a_path_of_a_machine() -> None:
    assert lines_with(MACHINE) == []


@pytest.mark.parametrize("text", ["see " + "/ho" + "me/ada/src", "'/ro" + "ot/x'", "/Us" + "ers/ada"])
def test_a_path_of_a_machine_would_be_found(text: str) -> None:
    assert MACHINE.search(text)


def test_no_lock_is_committed() -> None:
    assert "uv.lock" not in {path.name for path in committed()}


def test_the_root_is_a_virtual_workspace_whose_dev_group_has_the_engine() -> None:
    root = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "project" not in root
    assert any(each.startswith("romulus-engine[") for each in root["dependency-groups"]["dev"])


def test_every_version_is_pinned_exactly() -> None:
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]["constraint-dependencies"]

    assert {"apsw", "pydantic", "greenlet", "pytest"} <= {pin.partition("==")[0] for pin in pins}
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin)] == []


def test_continuous_integration_can_be_started() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
