"""The how-to guides do what they say: their snippets are run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

import romulus
from tests.repo.files import ROOT
from tests.repo.pages import blocks


@pytest.fixture
def guide(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The snippets of a page, one after another, as a module."""
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{tmp_path / 'runs.db'}")
    name = f"guide_{request.param.replace('-', '_')}"
    page = ROOT / "docs" / "how-to" / f"{request.param}.md"
    file = tmp_path / f"{name}.py"
    file.write_text("\n".join(block.code for block in blocks(page) if block.language == "python"))
    with imported(name, file) as module:
        yield module


@contextmanager
def imported(name: str, file: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        del sys.modules[name]


def of(page: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("guide", [page], indirect=True)


@of("callbacks")
async def test_a_callback_reaches_the_run_that_waits_for_it(guide: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    async with guide.app.worker(), guide.app.client() as client:
        handle = await client.start(guide.publish, "a.pdf")
        while not (open_waits := await client.waits()):
            pass
        reference = open_waits[0].correlation_id
        assert reference in capsys.readouterr().out
        assert await guide.scanned(client, "c1", reference, {"clean": "?"}) == 201
        assert await guide.scanned(client, "c2", reference, {"clean": True, "report": ""}) == 201
        assert await guide.scanned(client, "c2", reference, {"clean": True, "report": ""}) == 200
        assert await guide.scanned(client, "c2", reference, {"clean": False, "report": ""}) == 409

        assert await handle.result() == "published"
        assert {event.id: event.state for event in await client.events()} == {"c1": "bad", "c2": "consumed"}


@of("human-replies")
async def test_a_reply_by_the_runs_id_ends_the_wait(guide: ModuleType) -> None:
    async with guide.app.worker(), guide.app.client() as client:
        handle = await client.start(guide.holiday, "ada", "bob")
        await guide.answered(client, handle.id, "yes")

        assert await handle.result() == "yes"


@of("deadlines")
async def test_a_deadline_in_the_past_and_one_in_the_future(guide: ModuleType) -> None:
    async with guide.app.worker(), guide.app.client() as client:
        late = await client.start(guide.purchase, ["a", "bb"], guide.tomorrow.replace(year=2020))
        paid = await client.start(guide.purchase, ["a", "bb"], guide.tomorrow)
        await paid.send_event("paid", True)

        assert await late.result() == "not paid in time"
        assert await paid.result() == "paid 1"


@of("fan-out")
async def test_a_fan_out_and_a_child_that_goes_on_alone(guide: ModuleType) -> None:
    async with guide.app.worker(), guide.app.client() as client:
        handle = await client.start(guide.nightly.options(id="night"), ["a", "bb", "ccc"])

        assert await handle.result() == {"a": 1, "bb": 2, "ccc": 3}
        assert await client.get("night-bb").result() == 2
    async with guide.day.worker(), guide.day.client() as client:
        child = await (await client.start(guide.close_day, "a")).result()
        assert "~" in child
        assert await client.get(child).result() is None


@of("clean-up")
async def test_what_was_booked_is_given_back(guide: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    async with guide.app.worker(), guide.app.client() as client:
        well = await client.start(guide.trip, "ada")
        await well.send_event("approved", True)
        assert await well.result() == "booked"
        assert "back" not in capsys.readouterr().out
        badly = await client.start(guide.trip, "bob")
        await badly.send_event("approved", False)
        with pytest.raises(romulus.RunFailed, match="bob may not travel"):
            await badly.result()
    assert capsys.readouterr().out.splitlines() == ["booked hotel", "booked car", "gave car back", "gave hotel back"]


def test_every_guide_is_run_by_a_test_here() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "how-to").glob("*.md")} - {"README"}
    here = Path(__file__).read_text()

    assert {"callbacks", "human-replies", "deadlines", "fan-out", "clean-up"} <= {page for page in pages if f'@of("{page}")' in here}
