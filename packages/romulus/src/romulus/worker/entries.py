"""Makes journal entries of what a run was delivered, and runs its code with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from romulus.core.commands import Command
from romulus.core.instance import UNSET
from romulus.core.record import Entry, Kind

from .draft import Draft

if TYPE_CHECKING:
    from .driver import RunDriver


def entry_of(
    driver: RunDriver, draft: Draft, command: Command, body: bytes, *, failed: bool = False, attempt: int = 0, at: int = 0, info: str = ""
) -> Entry:
    """Return the next journal entry, stamped with the store's estimated time and never before the entry before it."""
    instance = driver.instance
    stamp = max(instance.now, at, driver.engine.store.estimated_now())
    return Entry(
        instance.position, command.kind, command.seq, command.name, attempt, stamp, failed, body,
        command.digest, info, driver.run.fence, draft.id,
    )  # fmt: skip


def record(driver: RunDriver, draft: Draft, entry: Entry, value: object = UNSET) -> None:
    """Record an entry and run the code with it to quiescence: the entry first, so that a broken advance cannot lose it."""
    draft.record(entry)
    driver.instance.deliver(entry, replaying=False, value=value)
    patches(driver, draft)


def patches(driver: RunDriver, draft: Draft) -> None:
    """Record what `patched` answered for the first time, right behind what was delivered."""
    instance = driver.instance
    for name, answer in instance.take_patches():
        position = driver.run.position + len(draft.entries)
        body = b"1" if answer else b"0"
        draft.record(Entry(position, Kind.PATCH, 0, name, 0, instance.now, False, body, b"", "", driver.run.fence, draft.id))
