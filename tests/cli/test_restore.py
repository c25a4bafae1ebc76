"""`romulus restore`: a SQLite file put back from a backup, asked before, told of in words and in JSON."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

import romulus
from romulus.cli.main import root

from .terminal import romulus_here

SENT: list[str] = []


@romulus.operation(timeout=5)
async def write(op: romulus.Operation, customer: str) -> str:
    SENT.append(op.id)
    return f"wrote {customer}"


@romulus.workflow
async def writes(customer: str) -> str:
    await romulus.wait_for_event("go", correlation_id=customer, type=bool)
    return await write(customer)


@romulus.workflow
async def plain(customer: str) -> str:
    await romulus.wait_for_event("go", correlation_id=customer, type=bool)
    return customer


async def to_the_end(*, backup: tuple[Path, Path] | None = None) -> list[str]:
    """Let both runs wait, copy the file there if asked to, and send them their events."""
    app = romulus.App(workflows=[writes, plain])
    async with app.client() as client, app.worker():
        handles = [await client.start(writes.options(id="w"), "ada"), await client.start(plain.options(id="p"), "bob")]
        for handle in handles:
            async for seen in handle.watch():
                if seen.status in ("waiting", "held"):
                    break
        if backup is not None:
            source, target = apsw.Connection(str(backup[0])), apsw.Connection(str(backup[1]))
            with closing(source), closing(target), target.backup("main", source, "main") as copying:
                copying.step()
        for customer in ("ada", "bob"):
            await client.send_event("go", True, correlation_id=customer)
        return [await handle.result(timeout=30, raise_on_hold=True) for handle in handles]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store put back from a backup of before a run sent its operation and ended."""
    SENT.clear()
    file, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{file}")
    assert asyncio.run(to_the_end(backup=(file, copy))) == ["wrote ada", "bob"]
    for old in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        old.unlink(missing_ok=True)
    copy.rename(file)
    return file


def statuses() -> dict[str, str]:
    return {run["id"]: run["status"] for run in romulus_here("runs", "list", "--json").json["items"]}


def test_what_may_have_been_sent_is_held_and_the_rest_goes_on(file: Path) -> None:
    said = romulus_here("restore", "--yes", "--json")

    assert said.code == 0
    (run,) = said.json["runs"]
    assert (run["id"], run["status"], run["hold_kind"], run["operations"]) == ("w", "held", "restore", [])
    assert "romulus runs release" in run["hold_reason"]
    assert said.json["operations"] == []
    assert said.json["since"] < said.json["restored_at"]
    assert statuses() == {"w": "held", "p": "waiting"}


def test_a_released_run_sends_nothing_again_before_a_person_has_said_that_it_may(file: Path) -> None:
    romulus_here("restore", "--yes")
    assert romulus_here("runs", "release", "w").code == 0

    with pytest.raises(romulus.RunHeld, match="may have been sent"):
        asyncio.run(to_the_end())
    assert len(SENT) == 1
    (item,) = romulus_here("operations", "list", "--state", "held", "--json").json["items"]
    assert [item["id"]] == SENT, "the operation ID of before"
    romulus_here("operations", "resolve", "not-applied", item["id"], "--reason", "looked", "--reviewer", "ada")
    assert asyncio.run(to_the_end()) == ["wrote ada", "bob"]
    assert [item["id"]] * 2 == SENT


def test_all_that_a_restore_holds_is_released_together(file: Path) -> None:
    romulus_here("restore", "--yes")

    assert romulus_here("restore", "--release", "--yes", "--json").json == {"released": 1}
    assert statuses()["w"] == "pending"
    assert romulus_here("restore", "--release", "--yes", "--json").json == {"released": 0}


def test_once_all_is_settled_operations_are_sent_as_usual_again(file: Path) -> None:
    romulus_here("restore", "--yes")
    romulus_here("restore", "--release", "--yes")

    assert romulus_here("restore", "--settled", "--yes", "--json").json == {"trusted": 2}
    assert asyncio.run(to_the_end()) == ["wrote ada", "bob"]
    assert len(SENT) == 2


@pytest.mark.parametrize("more", [[], ["--release"], ["--settled"]])
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_without_a_yes_nothing_is_done(file: Path, more: list[str], answer: str) -> None:
    result = CliRunner().invoke(root, ["restore", *more], input=answer)

    assert result.exit_code == 1
    assert "nothing was done" in result.stderr
    assert statuses() == {"w": "waiting", "p": "waiting"}


def test_people_are_told_which_runs_are_held_and_from_when_on_things_are_forgotten(file: Path) -> None:
    said = romulus_here("restore", "--yes", "--since", "2026-01-31T12:00:00Z")

    assert "what was done between 2026-01-31 12:00:00 UTC and now is forgotten" in said.out
    assert "go on from the backup: 0; runs held: 1" in said.out
    assert "writes 1" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--store", "sqlite:///nowhere.db"], "put the backup there first"),
        (["--store", "sqlite://"], "nothing to restore"),
        (["--since", "yesterday"], "give a time such as"),
        (["--release", "--settled"], "three different things"),
    ],
)
def test_what_cannot_be_restored_is_a_wrong_use(file: Path, arguments: list[str], words: str) -> None:
    said = romulus_here("restore", "--yes", *arguments)

    assert said.code == 2
    assert words in said.err.replace("\n", " ")
    assert statuses() == {"w": "waiting", "p": "waiting"}
