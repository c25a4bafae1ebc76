"""`romulus.logger`: lines of workflow code, written once, when the transition that made them commits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from romulus.core.instance import current
from romulus.core.loop import Unhandled

from .current import attempt_var
from .place import dropped

RUN_ID = "romulus_run_id"  # attribute of every record: the run's ID, "" outside a run
RELEASED = "romulus_released"  # attribute of a record that waited for its transition


def release(notes: Iterable[object], run_id: str = "") -> None:
    """Write the log lines and unhandled exceptions among *notes*, which an instance gave out: their transition is durable."""
    for note in notes:
        if isinstance(note, Unhandled):
            note = _unhandled(note, run_id)
        if isinstance(note, logging.LogRecord):
            setattr(note, RELEASED, True)
            logger.handle(note)


class _Buffer(logging.Filter):
    """Takes the records of workflow code off to the instance that made them. A filter, so that the logger may be configured before us."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, RELEASED):
            if _buffered(record):
                return False
            attempt = attempt_var.get()
            setattr(record, RUN_ID, "" if attempt is None else attempt.run.id)
        return _configured() or _fall_back(record)


class _Fallback(logging.Handler):
    """Like logging's last resort, with the run's ID."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:  # noqa: BLE001 - a log line never breaks its writer
            self.handleError(record)


class _Prefixed(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        run_id = getattr(record, RUN_ID, "")
        return f"[{run_id}] {super().format(record)}" if run_id else super().format(record)


def _buffered(record: logging.LogRecord) -> bool:
    instance = current()
    if instance is None:
        return dropped()  # without a noise
    setattr(record, RUN_ID, instance.info.id)
    _freeze(record)
    instance.note(record)
    return True


def _unhandled(note: Unhandled, run_id: str) -> logging.LogRecord:
    error = note.exception
    raised = None if error is None else (type(error), error, error.__traceback__)
    return logger.makeRecord(logger.name, logging.ERROR, "(workflow)", 0, note.message, (), raised, extra={RUN_ID: run_id})


def _freeze(record: logging.LogRecord) -> None:
    """Format now: the arguments may have changed by the time the record is written."""
    try:
        record.msg, record.args = record.getMessage(), None
    except Exception:  # noqa: BLE001 - arguments that do not fit: the handler reports them when the record is released
        return


def _configured() -> bool:
    return logger.hasHandlers()


def _fall_back(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        _fallback.handle(record)
    return False


def _logger() -> logging.Logger:
    named = logging.getLogger("romulus.workflow")
    if not any(isinstance(known, _Buffer) for known in named.filters):
        named.addFilter(_Buffer())
    return named


_fallback = _Fallback()
_fallback.setFormatter(_Prefixed())
logger = _logger()
