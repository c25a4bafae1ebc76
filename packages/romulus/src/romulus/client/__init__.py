"""The client: start runs, wait for them, look at them, ask something of them. `Client` is `AsyncClient` behind a portal."""

from .aio import AsyncClient
from .blocking import Client, Handle
from .handle import AsyncHandle
from .records import (
    CancelReply,
    EventReceipt,
    EventRecord,
    EvidenceRecord,
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

__all__ = [
    "AsyncClient", "AsyncHandle", "CancelReply", "Client", "EventReceipt", "EventRecord", "EvidenceRecord", "Handle", "JournalEntry",
    "OperationDescription", "OperationLine", "OperationRecord", "Page", "PendingCommand", "RunDescription", "WaitRecord", "WorkerRecord",
]  # fmt: skip
