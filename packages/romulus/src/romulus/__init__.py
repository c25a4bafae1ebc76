"""Workflows that survive a restart: durable execution in plain Python.

Declare steps and workflows with `@romulus.step` and `@romulus.workflow`, put them in a `romulus.App`, and run them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from romulus import blocking
    from romulus.app import App, run
    from romulus.authoring.children import ChildHandle, start
    from romulus.authoring.current import Attempt, continue_as_new, current_attempt, current_run, now, patched, rng, set_attributes, uuid4
    from romulus.authoring.logger import logger
    from romulus.authoring.operation import Operation, OperationFunction, SyncOperationFunction, operation
    from romulus.authoring.resource import Resource, resource
    from romulus.authoring.saga import Saga, saga
    from romulus.authoring.step import Step, SyncStep, step
    from romulus.authoring.waiting import Event, wait_for_event
    from romulus.authoring.workflow import AnyWorkflow, SyncWorkflow, Workflow, workflow
    from romulus.client import (
        AsyncClient,
        AsyncHandle,
        CancelReply,
        Client,
        EventReceipt,
        EventRecord,
        EvidenceRecord,
        Handle,
        JournalEntry,
        OperationDescription,
        OperationLine,
        OperationRecord,
        Page,
        PendingCommand,
        RunDescription,
        WaitRecord,
        WorkerRecord,
    )
    from romulus.core.duration import Duration
    from romulus.core.errors import (
        CallbackRefused,
        ChildFailed,
        CleanUpFailed,
        CleanUpTimeout,
        ConfigurationError,
        DefinitionError,
        EventConflict,
        NondeterminismRefused,
        NotDeterministic,
        NotInRun,
        NotSent,
        OperationAbandoned,
        OperationConflict,
        OperationNotFound,
        OperationRejected,
        Rejected,
        RomulusError,
        RunCancelled,
        RunConflict,
        RunFailed,
        RunHeld,
        RunNotFound,
        RunTerminated,
        SerializationError,
        StepFailed,
        StepTimeout,
        StoreError,
        StoreUnavailable,
        TooDeep,
        TooManyEvents,
        UnknownWorkflow,
        ValueTooLarge,
        WaitTimeout,
        WrongColour,
    )
    from romulus.core.instance import RunInfo
    from romulus.core.machine import RunStatus
    from romulus.core.operations import Applied, Callback, GiveUp, LookupResult, NotApplied, Unknown
    from romulus.core.retry import Retry
    from romulus.core.values import Codec, Redacted

# Each name is imported when first asked for: a part of the engine needs no other part because it lies below this package.
_NAMES = {
    "romulus.app": "App run",
    "romulus.authoring.children": "ChildHandle start",
    "romulus.authoring.current": "Attempt continue_as_new current_attempt current_run now patched rng set_attributes uuid4",
    "romulus.authoring.logger": "logger",
    "romulus.authoring.operation": "Operation OperationFunction SyncOperationFunction operation",
    "romulus.authoring.resource": "Resource resource",
    "romulus.authoring.saga": "Saga saga",
    "romulus.authoring.step": "Step SyncStep step",
    "romulus.authoring.waiting": "Event wait_for_event",
    "romulus.authoring.workflow": "AnyWorkflow SyncWorkflow Workflow workflow",
    "romulus.client": "AsyncClient AsyncHandle CancelReply Client EventReceipt EventRecord EvidenceRecord Handle "
    "JournalEntry "
    "OperationDescription OperationLine OperationRecord Page PendingCommand RunDescription WaitRecord WorkerRecord",
    "romulus.core.duration": "Duration",
    "romulus.core.errors": "CallbackRefused ChildFailed CleanUpFailed CleanUpTimeout ConfigurationError DefinitionError EventConflict "
    "NondeterminismRefused NotDeterministic NotInRun NotSent OperationAbandoned OperationConflict OperationNotFound OperationRejected "
    "Rejected RomulusError RunCancelled RunConflict RunFailed RunHeld RunNotFound RunTerminated SerializationError StepFailed "
    "StepTimeout StoreError StoreUnavailable TooDeep TooManyEvents UnknownWorkflow ValueTooLarge WaitTimeout WrongColour",
    "romulus.core.instance": "RunInfo",
    "romulus.core.machine": "RunStatus",
    "romulus.core.operations": "Applied Callback GiveUp LookupResult NotApplied Unknown",
    "romulus.core.retry": "Retry",
    "romulus.core.values": "Codec Redacted",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "blocking":
        return import_module("romulus.blocking")
    if name not in _HOME:
        raise AttributeError(f"module 'romulus' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AnyWorkflow", "App", "Applied", "AsyncClient", "AsyncHandle", "Attempt", "Callback", "CallbackRefused", "CancelReply",
    "ChildFailed", "ChildHandle", "CleanUpFailed", "CleanUpTimeout", "Client", "Codec", "ConfigurationError", "DefinitionError",
    "Duration", "Event", "EventConflict", "EventReceipt", "EventRecord", "EvidenceRecord", "GiveUp", "Handle", "JournalEntry",
    "LookupResult", "NondeterminismRefused", "NotApplied", "NotDeterministic", "NotInRun", "NotSent", "Operation", "OperationAbandoned",
    "OperationConflict", "OperationDescription", "OperationFunction", "OperationLine", "OperationNotFound", "OperationRecord",
    "OperationRejected", "Page", "PendingCommand", "Redacted", "Rejected", "Resource", "Retry", "RomulusError", "RunCancelled",
    "RunConflict", "RunDescription", "RunFailed", "RunHeld", "RunInfo", "RunNotFound", "RunStatus", "RunTerminated", "Saga",
    "SerializationError", "Step", "StepFailed", "StepTimeout", "StoreError", "StoreUnavailable", "SyncOperationFunction", "SyncStep",
    "SyncWorkflow", "TooDeep", "TooManyEvents", "Unknown", "UnknownWorkflow", "ValueTooLarge", "WaitRecord", "WaitTimeout",
    "WorkerRecord", "Workflow", "WrongColour", "blocking", "continue_as_new", "current_attempt", "current_run", "logger", "now",
    "operation", "patched", "resource", "rng", "run", "saga", "set_attributes", "start", "step", "uuid4", "wait_for_event", "workflow",
]  # fmt: skip
