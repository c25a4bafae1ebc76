"""`app.run`: start a run or go on with it, here, to its end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import romulus
from romulus import ConfigurationError, RunConflict, RunFailed, RunHeld, UnknownWorkflow
from romulus.authoring.workflow import workflow

from .programs import ORDERS, running, until, written


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def double(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return 2 * number


@romulus.workflow
async def doubled(number: int) -> int:
    return await double(number)


@romulus.workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@workflow
def plain(number: int) -> int:
    return number + 1


def app_at(path: Path) -> romulus.App:
    return romulus.App(f"sqlite:///{path / 'runs.db'}", workflows=[doubled, stuck, plain])


def test_a_run_without_an_id_is_new_each_time_and_its_id_is_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = app_at(tmp_path)
    assert app.run(doubled, 4) == 8
    assert app.run(doubled, 5) == 10

    out, err = capsys.readouterr()
    ids = [line.removeprefix("run ") for line in err.splitlines() if line.startswith("run ")]
    assert out == ""
    with romulus.Client(app) as client:
        assert [run.id for run in client.runs()] == ids
        assert len(set(ids)) == 2


def test_an_id_is_run_once_and_its_result_given_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = app_at(tmp_path)
    assert [app.run(doubled.options(id="d"), 4) for _ in range(2)] == [8, 8]
    assert capsys.readouterr().err == ""
    with pytest.raises(RunConflict):
        app.run(doubled.options(id="d"), 5)


def test_def_workflows_run_as_well(tmp_path: Path) -> None:
    assert app_at(tmp_path).run(plain, 1) == 2


def test_a_failed_run_tells_where_its_step_raised_and_nothing_of_ours_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as failed:
        app_at(tmp_path).run(doubled, -1)

    (note,) = failed.value.__notes__
    assert "in double" in note
    assert "During handling of the above exception" not in note


def test_a_failed_run_raises_with_its_cause_and_a_held_one_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="negative") as failed:
        app_at(tmp_path).run(doubled, -1)
    assert isinstance(failed.value.__cause__, ValueError)

    with pytest.raises(RunHeld) as held:
        app_at(tmp_path).run(stuck)
    assert held.value.hold_reason


def test_a_workflow_of_another_app_is_refused_before_it_starts(tmp_path: Path) -> None:
    app = romulus.App(f"sqlite:///{tmp_path / 'runs.db'}", workflows=[doubled])
    with pytest.raises(UnknownWorkflow, match="known: doubled version 1"):
        app.run(plain, 1)


async def test_inside_an_event_loop_it_names_what_to_use_instead(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"app\.worker\(\)"):
        app_at(tmp_path).run(doubled, 1)


def test_the_store_is_the_argument_else_the_variable_else_a_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert romulus.run(doubled, 3) == 6
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{tmp_path / 'named.db'}")
    assert romulus.run(doubled, 3) == 6
    app_at(tmp_path).run(doubled, 3)

    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["named.db", "romulus.db", "runs.db"]


@pytest.mark.parametrize("url", ["nonsense", "mysql://x", "sqlite:/x", "sqlite:///", "sqlite:///a?b=c"])
def test_a_bad_store_url_is_one_clear_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not a store URL"):
        romulus.App(url, workflows=[doubled]).run(doubled, 1)


@pytest.mark.process
def test_a_program_killed_in_its_sleep_goes_on_without_charging_again(tmp_path: Path) -> None:
    program = written(tmp_path, "orders.py", ORDERS)
    with running(program) as first:
        until(lambda: _recorded(tmp_path) >= 1)
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL

    with running(program) as second:
        out, err = second.communicate(timeout=60)

    assert (out, second.returncode) == ("receipt for 42\n", 0), err
    assert (tmp_path / "charges").read_text() == "42\n"


@pytest.mark.process
def test_ctrl_c_leaves_the_run_to_be_gone_on_with(tmp_path: Path) -> None:
    program = written(tmp_path, "orders.py", ORDERS)
    with running(program) as first:
        until(lambda: _recorded(tmp_path) >= 1)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60)
    assert first.returncode == -signal.SIGINT
    assert "run checkout-42 goes on when it is started again" in err
    with romulus.Client(f"sqlite:///{tmp_path / 'orders.db'}") as client:
        assert client.get("checkout-42").describe().owner is None

    with running(program) as second:
        assert second.communicate(timeout=60)[0] == "receipt for 42\n"
    assert (tmp_path / "charges").read_text() == "42\n"


def _recorded(directory: Path) -> int:
    """Return how many outcomes the program's run has."""
    if not (directory / "charges").exists():
        return 0
    with romulus.Client(f"sqlite:///{directory / 'orders.db'}") as client:
        return client.get("checkout-42").describe().position
