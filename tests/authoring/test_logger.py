"""`romulus.logger`: lines of workflow code are written once, when their transition is durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime

import pytest

import romulus
from romulus.authoring.current import Attempt, attempt_var
from romulus.authoring.logger import release
from romulus.core.instance import RunInfo
from tests.authoring.runs import begin


class Kept(logging.Handler):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    romulus.logger.addHandler(handler)
    romulus.logger.setLevel(logging.INFO)
    yield handler
    romulus.logger.removeHandler(handler)
    romulus.logger.setLevel(logging.NOTSET)


def handlers(monkeypatch: pytest.MonkeyPatch, *only: logging.Handler) -> None:
    """Leave the logger no handlers but *only*: pytest hangs its own everywhere, and those raise."""
    monkeypatch.setattr(romulus.logger, "propagate", False)
    monkeypatch.setattr(romulus.logger, "handlers", list(only))


@romulus.workflow
async def logs(words: list[str]) -> None:
    romulus.logger.info("words: %s", words)
    words.append("later")


def test_a_line_of_workflow_code_is_written_when_it_is_released(kept: Kept) -> None:
    notes = begin(logs, ["first"]).take_notes()
    assert kept.records == []
    release(notes)
    [record] = kept.records
    assert (record.getMessage(), record.levelname, vars(record)["romulus_run_id"]) == ("words: ['first']", "INFO", "run-1")


def test_a_line_of_a_dropped_instance_is_never_written(kept: Kept) -> None:
    begin(logs, ["first"]).close()
    assert kept.records == []


def test_the_clean_up_of_a_dropped_instance_writes_nothing(kept: Kept) -> None:
    @romulus.step
    async def work() -> None: ...

    @romulus.workflow
    async def cleans() -> None:
        try:
            await work()
        finally:
            romulus.logger.info("cleaning up")

    instance = begin(cleans)
    instance.close()
    assert kept.records == []


def test_an_exception_nobody_took_up_is_written_with_its_transition(kept: Kept) -> None:
    @romulus.workflow
    async def careless() -> None:
        asyncio.get_running_loop().call_soon(int, "seven")
        await asyncio.sleep(1)

    notes = begin(careless).take_notes()
    assert kept.records == []
    release(notes, "run-1")
    [record] = kept.records
    assert (record.levelname, vars(record)["romulus_run_id"]) == ("ERROR", "run-1")
    assert isinstance(record.exc_info and record.exc_info[1], ValueError)


def test_a_line_outside_a_run_is_written_at_once(kept: Kept) -> None:
    romulus.logger.info("hello")
    assert [(record.getMessage(), vars(record)["romulus_run_id"]) for record in kept.records] == [("hello", "")]


def test_a_line_of_a_step_is_written_at_once_with_its_runs_id(kept: Kept) -> None:
    run = RunInfo("run-9", "sell", "1", datetime(2026, 1, 1, tzinfo=UTC), "default", 1)
    context = copy_context()
    context.run(attempt_var.set, Attempt(run, "charge", 0, 1, 1, b"seed"))
    context.run(romulus.logger.info, "charging")
    assert [vars(record)["romulus_run_id"] for record in kept.records] == ["run-9"]


def test_a_line_names_the_place_that_wrote_it(kept: Kept) -> None:
    release(begin(logs, []).take_notes())
    assert [record.funcName for record in kept.records] == ["logs"]


def test_a_line_whose_arguments_do_not_fit_does_not_break_the_run(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers(monkeypatch, kept)

    @romulus.workflow
    async def odd() -> str:
        romulus.logger.info("%d items", "many")
        return "done"

    instance = begin(odd)
    assert instance.outcome is not None
    release(instance.take_notes())
    assert [record.args for record in kept.records] == [("many",)]


def test_a_line_below_the_level_is_not_kept(kept: Kept) -> None:
    romulus.logger.setLevel(logging.ERROR)
    assert begin(logs, []).take_notes() == []


def test_where_no_logging_is_configured_warnings_go_to_stderr_with_the_runs_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers(monkeypatch)

    @romulus.workflow
    async def warns() -> None:
        romulus.logger.warning("low on %s", "paper")
        romulus.logger.info("not shown")

    release(begin(warns).take_notes())
    romulus.logger.warning("outside")
    assert capsys.readouterr().err == "[run-1] low on paper\noutside\n"


def test_notes_of_others_are_left_alone(kept: Kept) -> None:
    release([object(), "text"])
    assert kept.records == []
