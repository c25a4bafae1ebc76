"""How stored bytes are shown: through the code that wrote them where it is at hand, else as plain JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from romulus.core.commands import OperationSpec, StepSpec, WorkflowSpec
from romulus.core.errors import Undecodable
from romulus.core.failures import describe_failure, failure_traceback, load_failure
from romulus.core.record import Entry, Generation, Kind
from romulus.core.redaction import HIDES, REDACTED
from romulus.core.values import Vault

if TYPE_CHECKING:
    from romulus.authoring.registry import Registry

VALUE_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reader:
    """Opens and decodes what a store holds; *registry* is the code at hand, if there is an App."""

    vault: Vault
    registry: Registry | None = None

    def result(self, generation: Generation, spec: WorkflowSpec | None) -> Any:
        """Return a succeeded generation's result, as *spec* declares it.

        Raises:
            Undecodable: the App's codec or the declared type does not fit the stored bytes.
        """
        plain = self.vault.open(generation.result or b"null", f"result of workflow {generation.workflow!r}")
        known = spec or self.workflow(generation.workflow, generation.version)
        return known.value.load(plain) if known else plain_json(plain)

    def shown_result(self, generation: Generation) -> Any:
        """Return a generation's result for people, None before there is one; never raises."""
        if generation.result is None:
            return None
        try:
            plain = self.vault.open(generation.result, "result")
            known = self.workflow(generation.workflow, generation.version)
            return known.value.redacted(plain) if known else shown_json(plain)
        except Undecodable as error:
            return f"({error})"

    def failure(self, stored: bytes) -> BaseException:
        """Return a stored failure as an exception: its own class where that can be rebuilt."""
        return load_failure(self.vault.open(stored, "failure"))

    def error(self, stored: bytes) -> str:
        """Return a stored failure in one line; never raises."""
        try:
            return describe_failure(self.vault.open(stored, "failure"))
        except Undecodable as error:
            return f"({error})"

    def traceback(self, stored: bytes) -> str | None:
        """Return where a stored failure was raised, as Python prints it; None where that is not known. Never raises."""
        try:
            return failure_traceback(self.vault.open(stored, "failure")) or None
        except Undecodable:
            return None

    def outcome(self, entry: Entry) -> Any:
        """Return an entry's value for a listing; never raises: what cannot be read says so."""
        try:
            return self._outcome(entry)
        except Undecodable as error:
            return f"({error})"

    def payload(self, stored: bytes) -> Any:
        """Return an event's payload for a listing; never raises."""
        try:
            return shown_json(self.vault.open(stored, "event payload"))
        except Undecodable as error:
            return f"({error})"

    def workflow(self, name: str, version: str) -> WorkflowSpec | None:
        """Return the workflow of the code at hand."""
        return self.registry.workflows.get((name, version)) if self.registry else None

    def _outcome(self, entry: Entry) -> Any:
        if entry.kind == Kind.PATCH:
            return entry.body == b"1"
        if not entry.body:
            return None
        plain = self.vault.open(entry.body, f"outcome of {entry.kind} {entry.name!r}")
        known = self._step(entry) or self._child(entry) or self._operation(entry)
        return known.value.redacted(plain) if known else shown_json(plain)

    def _child(self, entry: Entry) -> WorkflowSpec | None:
        """Return the workflow of a child's outcome: any version, since what is redacted is marked in the types they share."""
        if self.registry is None or entry.kind != Kind.CHILD:
            return None
        return next((spec for (name, _), spec in self.registry.workflows.items() if name == entry.name), None)

    def _operation(self, entry: Entry) -> OperationSpec | None:
        return self.registry.operations.get(entry.name) if self.registry and entry.kind == Kind.OPERATION else None

    def _step(self, entry: Entry) -> StepSpec | None:
        return self.registry.steps.get(entry.name) if self.registry and entry.kind == Kind.STEP else None


def shown_json(data: bytes) -> Any:
    """Return what JSON *data* holds for a listing without its code: of a value with redacted parts nothing, since only that says which.

    Raises:
        Undecodable: it is not JSON.
    """
    return REDACTED if data.endswith(HIDES) else plain_json(data)


def plain_json(data: bytes) -> Any:
    """Return what JSON *data* holds: integers exactly, NaN and infinities as text; decimals were stored as text.

    Raises:
        Undecodable: it is not JSON.
    """
    try:
        return json.loads(data, parse_int=_exact, parse_constant=str)
    except ValueError as error:
        raise Undecodable(f"not readable without its App: the stored value is not JSON ({error})") from None


def _exact(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # longer than Python converts: shown as it stands
        return digits
