"""Bad input, end to end: one clear error each, the exit code that API.md names, nothing lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import romulus
from tests.processes.apps.careless import Handle, Order, app, grows, hands_on, packs, returns, stands, takes
from tests.processes.stage import Process, Stage

pytestmark = pytest.mark.process
APP = "tests.processes.apps.careless:app"
FAILED, USAGE = 1, 2
COMMANDS = {
    "worker": ("worker", APP), "start": ("runs", "start", "packs", "{}"), "list": ("runs", "list"), "show": ("runs", "show", "r"),
    "send": ("events", "send", "e", "1", "--correlation-id", "c"), "workers": ("workers",), "migrate": ("migrate",),
}  # fmt: skip


async def _all_refused(stage: Stage, code: int, *said: str, commands: Iterable[str] = (), store: str | None = None) -> None:
    """Run commands of every kind at once, on *store* where one is given, and require one clear error of each."""
    environment = {} if store is None else {"ROMULUS_STORE": store}
    processes = [stage.cli(*COMMANDS[command], **environment) for command in commands or COMMANDS]
    for process in processes:
        await _refused(stage, process, code, *said)


async def _refused(stage: Stage, process: Process, code: int, *said: str) -> None:
    """Require one clear error and nothing else."""
    assert await stage.exited(process) == code, process.log
    errors = [line for line in process.log.splitlines() if not (" INFO " in line or " WARNING " in line)]
    assert len(errors) == 1, process.log
    assert errors[0].startswith("romulus: ")
    assert all(words in errors[0] for words in said), errors
    assert process.out == ""


# ---- workflows, versions, arguments ----------------------------------------------------------------


async def test_a_run_of_an_unknown_workflow_or_version_waits_and_is_shown_as_stranded_until_somebody_serves_it(stage: Stage) -> None:
    stage.deploy("other", "import romulus\n@romulus.workflow\nasync def else_() -> None: ...\napp = romulus.App(workflows=[else_])\n")
    await stage.worker("other:app")
    order = json.dumps({"order": {"id": 1, "lines": ["a"]}})
    for run, more in (("unknown", ("nobody", "{}")), ("known", ("packs", order)), ("version", ("packs", order, "--version", "7"))):
        start = stage.cli("runs", "start", *more, "--id", run)
        assert await stage.exited(start) == 0
        assert "no live worker serves" in start.log
        assert (await stage.client.get(run).describe()).stranded
    await stage.worker(APP)
    assert await stage.client.get("known").result(timeout=30) == 1
    assert {run.id: run.status for run in await stage.client.runs()} == {"unknown": "pending", "known": "succeeded", "version": "pending"}
    cancel = stage.cli("runs", "cancel", "unknown")
    assert await stage.exited(cancel) == 0


async def test_arguments_that_do_not_fit_hold_the_run_by_name_and_are_lost_to_nobody(stage: Stage) -> None:
    """Started where the code is not: the worker is the first that can tell."""
    await stage.worker(APP)
    wrong = {"missing": {}, "unknown": {"order": {"id": 1, "lines": []}, "more": 1}, "type": {"order": {"id": "one", "lines": []}}}
    for run, arguments in wrong.items():
        start = stage.cli("runs", "start", "packs", json.dumps(arguments), "--id", run)
        assert await stage.exited(start) == 0
    for run in wrong:
        held = await stage.status(run, "held", "failed", "succeeded")
        assert held.status == "held", held
        assert "packs" in (held.hold_reason or "")
        assert "order" in (held.hold_reason or "") or "more" in (held.hold_reason or "")
    right = await stage.client.start(packs, Order(1, ["a", "b"]))
    assert await right.result(timeout=30) == 2
    assert len(stage.effects("pack")) == 1


async def test_where_the_code_is_wrong_arguments_are_refused_before_anything_is_stored(stage: Stage) -> None:
    async with romulus.AsyncClient(romulus.App(stage.url, workflows=[packs])) as client:
        with pytest.raises(TypeError, match="order"):
            await client.start_by_name("packs", {})
        with pytest.raises((romulus.SerializationError, TypeError)):
            await client.start_by_name("packs", {"order": {"id": "one", "lines": []}})
        with pytest.raises(romulus.SerializationError, match="Handle"):
            await client.start(packs, Order(1, [Handle()]))  # type: ignore[list-item]
        with pytest.raises(TypeError):
            await client.start(packs)  # type: ignore[call-arg]
        assert not await client.runs()


# ---- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workflow", "said", "bodies"),
    [(hands_on, ("keep", "Handle"), []), (takes, ("opened", "Handle"), ["opened"]), (returns, ("returns", "Handle"), [])],
)
async def test_a_value_that_cannot_be_stored_fails_the_run_once_and_names_whose_and_which(
    stage: Stage, workflow: romulus.Workflow[[], object], said: tuple[str, ...], bodies: list[str]
) -> None:
    await stage.worker(APP)
    handle = await stage.client.start(workflow)
    with pytest.raises(romulus.RunFailed) as failed:
        await handle.result(timeout=30)
    assert isinstance(failed.value.__cause__, romulus.SerializationError)
    assert all(words in str(failed.value.__cause__) for words in said)
    assert [line["what"] for line in stage.effects()] == bodies


async def test_a_value_over_the_limit_is_refused_by_step_size_and_limit_before_anything_is_tried_again(stage: Stage) -> None:
    await stage.worker(APP)
    fits = await stage.client.start(grows, 2_000_000)
    assert await fits.result(timeout=30) == 2_000_000
    handle = await stage.client.start(grows, 3_000_000)
    with pytest.raises(romulus.RunFailed) as failed:
        await handle.result(timeout=30)
    assert isinstance(failed.value.__cause__, romulus.ValueTooLarge)
    assert all(words in str(failed.value.__cause__).replace(",", "") for words in ("large", "300000", str(2 * 1024 * 1024)))
    assert len(stage.effects("large")) == 2
    with pytest.raises(romulus.ValueTooLarge, match="payload|event"):
        async with romulus.AsyncClient(romulus.App(stage.url, workflows=[packs])) as client:
            await client.send_event("e", "x" * 3_000_000, correlation_id="c")


# ---- stores ----------------------------------------------------------------------------------------


async def test_a_bad_store_url_is_wrong_usage(stage: Stage) -> None:
    await _all_refused(stage, USAGE, "is not a store URL", "mysql://host/x", store="mysql://host/x")
    await _all_refused(stage, USAGE, "is not a store URL", "runs.db", commands=("worker", "start"), store="runs.db")


async def test_a_file_that_is_not_ours_is_named_and_left_untouched(stage: Stage) -> None:
    text, other = stage.directory / "text.db", stage.directory / "other.db"
    text.write_bytes(b"not a database, and longer than the header of one would be, that is more than a hundred bytes" * 20)
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = text.read_bytes(), other.read_bytes()
    await _all_refused(stage, FAILED, "text.db", "untouched", store=f"sqlite:///{text}")
    await _all_refused(stage, FAILED, "other.db", "untouched", commands=("worker", "list", "migrate"), store=f"sqlite:///{other}")
    assert (text.read_bytes(), other.read_bytes()) == before


async def test_a_newer_schema_is_refused_by_its_number_and_left_untouched(stage: Stage) -> None:
    handle = await stage.client.start(stands.options(id="r"), "gate")
    await stage.client.close()
    with stage.database() as database:
        database.execute("PRAGMA user_version = 999")
    await _all_refused(stage, FAILED, "999", "romulus.db")
    assert stage.rows("SELECT id, status FROM runs") == [(handle.id, "pending")]


@contextmanager
def _small_disk(path: Path, size: str) -> Iterator[Path]:
    """Mount a file system of its own; skip where this user may not."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def _fill(path: Path) -> None:
    """Take all the room there is."""
    with (path / "filler").open("wb", buffering=0) as file:
        for size in (65_536, 512):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


async def test_a_full_disk_loses_nothing_and_work_goes_on_once_there_is_room(stage: Stage) -> None:
    with _small_disk(stage.directory / "disk", "4m") as disk:
        url = f"sqlite:///{disk / 'runs.db'}"
        async with romulus.AsyncClient(url) as client:
            worker = await stage.worker(APP, ROMULUS_STORE=url, ROMULUS_LEASE="30")
            handle = await client.start(stands.options(id="r"), "gate")
            await stage.seen("begin")
            _fill(disk)
            await _all_refused(stage, FAILED, "the disk is full", "runs.db", commands=("start", "send"), store=url)
            with pytest.raises(romulus.StoreUnavailable, match="the disk is full"):
                await client.start(stands, "x" * 100_000)
            stage.open("gate")
            await stage.seen("end")
            assert (await handle.describe()).status == "running"
            (disk / "filler").unlink()
            assert await handle.result(timeout=30) == "gate"
            assert [line["attempt"] for line in stage.effects("begin")] == [1]
            await stage.stop(worker)


async def test_a_read_only_store_is_told_of_with_the_remedy(stage: Stage) -> None:
    with _small_disk(stage.directory / "disk", "4m") as disk:
        url = f"sqlite:///{disk / 'runs.db'}"
        async with romulus.AsyncClient(url) as client:
            await client.start(stands.options(id="r"), "gate")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        await _all_refused(stage, FAILED, "runs.db", "may be written", commands=("worker", "start", "send", "migrate"), store=url)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        stage.open("gate")
        async with romulus.AsyncClient(url) as client:
            await stage.worker(APP, ROMULUS_STORE=url)
            assert await client.get("r", stands).result(timeout=30) == "gate"


# ---- modules ---------------------------------------------------------------------------------------


async def test_an_app_that_is_not_there_is_wrong_usage_for_several_processes_too(stage: Stage) -> None:
    """For one process tests/cli has every kind."""
    asked = {
        said: stage.cli("worker", target, "--processes", "2") for target, said in (("nowhere:app", "'nowhere'"), (f"{APP}le", "apple"))
    }
    for said, process in asked.items():
        await _refused(stage, process, USAGE, said)


def test_the_app_of_these_tests_has_what_they_start() -> None:
    assert {name for name, _ in app.registry.workflows} == {"packs", "hands_on", "takes", "returns", "grows", "stands"}
