"""What people and providers say of operations: listings, resolutions, signed callbacks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from romulus.authoring.registry import Registry
from romulus.core.commands import OperationSpec
from romulus.core.duration import to_datetime
from romulus.core.errors import ConfigurationError, DefinitionError, OperationConflict, OperationNotFound, SerializationError
from romulus.core.machine import Change, RunStatus, after
from romulus.core.operations import (
    SETTLED,
    Applied,
    Callback,
    Decided,
    GiveUp,
    NotApplied,
    OperationNote,
    OperationRow,
    OperationState,
    Report,
    ReportKind,
    Unknown,
    decide,
)
from romulus.core.text import check_text

from .link import Link
from .reading import Reader, shown_json
from .records import OperationDescription, OperationLine, OperationRecord, Page
from .webhooks import verified

Resolution: TypeAlias = Applied[Any] | NotApplied | GiveUp
REASON_MAX_CHARS = 2_000
REVIEWER_MAX_CHARS = 200
OPERATION_ID_MAX_CHARS = 200
MEANWHILE = {
    OperationState.ARMED: "it may be sent this very moment; what comes of that is known within its timeout, else it can be resolved then",
    OperationState.QUEUED: "nothing of it was sent; to have it not sent, cancel what awaits it",
    OperationState.RESEND: "it is about to be sent again",
}
REOPENED = after(RunStatus.HELD, Change.RELEASE)


async def listed(link: Link, state: str | None, after_: str | None, limit: int) -> Page[OperationRecord]:
    """Return a page of operations in the order they were recorded."""
    page = await (await link.store()).operations(link.namespace, _state(state), None, after_, limit)
    return Page([record_view(row) for row in page.items], page.next)


async def shown(link: Link, operation_id: str) -> OperationDescription:
    """Return an operation with all that is known of it.

    Raises:
        OperationNotFound
    """
    row = await _found(link, operation_id)
    notes = await (await link.store()).operation_notes(row.key)
    return OperationDescription(
        record_view(row), _arguments(link.reader, row), tuple(_line(link.reader, row, note) for note in notes),
        to_datetime(row.may_leave_until) if row.may_leave_until else None,
    )  # fmt: skip


async def resolve(link: Link, operation_id: str, resolution: Resolution, reason: str, reviewer: str) -> OperationRecord:
    """Settle an operation by a person's word.

    Raises:
        OperationNotFound; OperationConflict: it is settled, or being sent now; SerializationError: the value is no result of it.
    """
    check_text(reason, "reason", REASON_MAX_CHARS)
    check_text(reviewer, "reviewer", REVIEWER_MAX_CHARS)
    if not reason.strip() or not reviewer.strip():
        raise ConfigurationError("a resolution needs reason= and reviewer=: both are kept in the operation's history")
    row = await _found(link, operation_id)
    kind, body = _said(link, row, resolution)
    try:
        decided = await _report(
            link, Report(link.namespace, operation_id, kind, reviewer, body=body, detail=json.dumps({"reason": reason}), why=reason)
        )
    except OperationConflict as late:
        raise OperationConflict(operation_id, f"{late.why}: {await _what_happened(link, operation_id)}") from None
    if decided is None:
        raise OperationNotFound(operation_id, link.namespace)
    return record_view(decided.row)


async def received(link: Link, source: str, headers: Mapping[str, str], body: bytes, secret: str) -> OperationRecord:
    """Take a provider's signed callback, as `AsyncClient.receive_callback` says."""
    registry = _code(link, "a callback")
    payload = verified(headers, body, secret)
    bound = [spec for spec in registry.operations.values() if source in spec.extras.callbacks]
    if not bound:
        raise DefinitionError(f"no operation has a callback for source {source!r}: declare one with @OPERATION.callback(source={source!r})")
    row, spec, callback = await _spoken_of(link, source, bound, payload)
    decided = await _report(link, _evidence(link, row, spec, source, callback))
    return record_view(decided.row if decided else row)


# ---- inside ----------------------------------------------------------------------------------------


async def _found(link: Link, operation_id: str) -> OperationRow:
    row = await (await link.store()).operation(link.namespace, check_text(operation_id, "operation ID", OPERATION_ID_MAX_CHARS))
    if row is None:
        raise OperationNotFound(operation_id, link.namespace)
    return row


async def _what_happened(link: Link, operation_id: str) -> str:
    """Return what brought the operation to where it stands, for a person who would have it otherwise."""
    row = await _found(link, operation_id)
    if row.state in MEANWHILE:
        return MEANWHILE[row.state]
    notes = await (await link.store()).operation_notes(row.key)
    brought = next((note for note in notes if note.state == row.state), None)
    if brought is None or row.state not in SETTLED:
        return f"so it stands since {to_datetime(row.updated_at):%Y-%m-%d %H:%M:%S} UTC"
    return f"{brought.kind!r} of {brought.who!r} settled it at {to_datetime(brought.at):%Y-%m-%d %H:%M:%S} UTC"


async def _report(link: Link, report: Report) -> Decided | None:
    (decided,) = await (await link.store()).report([report], decide, REOPENED)
    return decided


def _said(link: Link, row: OperationRow, resolution: Resolution) -> tuple[ReportKind, bytes]:
    """Return the kind of the report, and the outcome it gives."""
    match resolution:
        case Applied(value):
            return ReportKind.RESOLVED_APPLIED, _value(link, row, value)
        case NotApplied():
            return ReportKind.RESOLVED_ABSENT, b""
        case GiveUp():
            return ReportKind.GIVEN_UP, b""
        case _:
            raise ConfigurationError("resolve an operation as romulus.Applied(value), NotApplied() or GiveUp()")


def _state(state: str | None) -> OperationState | None:
    try:
        return None if state is None else OperationState(state)
    except ValueError:
        raise ConfigurationError(f"{state!r} is no state of an operation; there are {', '.join(OperationState)}") from None


def _code(link: Link, what: str) -> Registry:
    if link.registry is None:
        raise ConfigurationError(f"{what} needs the code that declares the operation: make the client of the App, AsyncClient(app)")
    return link.registry


def _value(link: Link, row: OperationRow, value: Any) -> bytes:
    """Return *value* sealed, checked against what the operation declares."""
    spec = _code(link, "a resolution as applied").operations.get(row.name)
    if spec is None:
        raise ConfigurationError(f"operation {row.name!r} is not known to the App here: add it to App(steps=[…])")
    try:
        plain = spec.value.dump(value)[0]
    except SerializationError:
        plain = spec.value.dump(spec.value.accept(value))[0]  # JSON-like, as the command line has it
    return link.vault.seal(plain, f"the result of operation {row.name!r}")


async def _spoken_of(
    link: Link, source: str, bound: Sequence[OperationSpec], payload: Mapping[str, Any]
) -> tuple[OperationRow, OperationSpec, Callback[Any]]:
    """Return the operation that the payload speaks of: one that *source* is bound to, whatever the payload says."""
    refusals: list[Exception] = []
    for spec in bound:
        try:
            callback = _read(spec, source, payload)
            row = _of(spec, source, await _found(link, callback.operation_id))
        except Exception as error:  # noqa: BLE001  a user's code, which reads messages that may be for another operation
            refusals.append(error)
        else:
            return row, spec, callback
    raise refusals[0]


def _of(spec: OperationSpec, source: str, row: OperationRow) -> OperationRow:
    if row.name != spec.name:
        raise OperationConflict(row.id, f"is of {row.name!r}: source {source!r} does not speak for it")
    return row


def _read(spec: OperationSpec, source: str, payload: Mapping[str, Any]) -> Callback[Any]:
    callback: Any = spec.extras.callbacks[source](payload)
    if not isinstance(callback, Callback):
        raise DefinitionError(f"the callback of operation {spec.name!r} returned {type(callback).__name__}, not a romulus.Callback")
    outcome = cast("object", callback.outcome)  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(outcome, Applied | NotApplied | Unknown):
        raise DefinitionError(
            f"the callback of operation {spec.name!r} says {type(outcome).__name__}; a romulus.Callback says Applied, NotApplied or Unknown"
        )
    return callback  # pyright: ignore[reportUnknownVariableType]  # of whatever the code makes it


def _evidence(link: Link, row: OperationRow, spec: OperationSpec, source: str, callback: Callback[Any]) -> Report:
    who = f"source {source}"
    match callback.outcome:
        case Applied(value):
            try:
                return Report(link.namespace, row.id, ReportKind.CALLED_APPLIED, who, body=_value(link, row, value))
            except SerializationError as error:
                detail = json.dumps({"applied": True, "error": str(error)})
                return Report(link.namespace, row.id, ReportKind.CALLED_UNKNOWN, who, detail=detail)
        case NotApplied():
            return Report(link.namespace, row.id, ReportKind.CALLED_ABSENT, who)
        case Unknown():
            return Report(link.namespace, row.id, ReportKind.CALLED_UNKNOWN, who, detail=json.dumps({"reason": callback.outcome.words}))


def record_view(row: OperationRow) -> OperationRecord:
    """Describe an operation in a listing."""
    return OperationRecord(
        row.id, row.run_id, row.name, str(row.state), row.sends, row.seq, row.hold_reason or None, row.awaited,
        None if row.first_sent_at is None else to_datetime(row.first_sent_at), to_datetime(row.created_at), to_datetime(row.updated_at),
        None if row.ended_at is None else to_datetime(row.ended_at), None if row.due is None else to_datetime(row.due),
        row.protocol.idempotent, row.protocol.has_lookup, row.pool, row.workflow,
    )  # fmt: skip


def _arguments(reader: Reader, row: OperationRow) -> Any:
    try:
        plain = reader.vault.open(row.arguments, f"arguments of operation {row.name!r}")
        spec = _spec(reader, row)
        return spec.arguments.redacted(plain) if spec else shown_json(plain)
    except Exception as error:  # noqa: BLE001  a listing goes on
        return f"({error})"


def _line(reader: Reader, row: OperationRow, note: OperationNote) -> OperationLine:
    detail = json.loads(note.detail)
    error = value = None
    if note.body and note.kind.endswith("applied"):
        spec = _spec(reader, row)
        value = spec.value.redacted(reader.vault.open(note.body, "result")) if spec else reader.payload(note.body)
    elif note.body and note.kind != ReportKind.SENT:
        error = reader.error(note.body)
    return OperationLine(to_datetime(note.at), note.kind, note.who, note.state, detail, value, error)


def _spec(reader: Reader, row: OperationRow) -> OperationSpec | None:
    return reader.registry.operations.get(row.name) if reader.registry else None
