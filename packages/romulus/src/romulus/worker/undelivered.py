"""What attempts have come to that the code was not told: recorded alone, since a replay tells it, so that none of them runs again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from romulus.core.record import ALONE, AttemptRow, Entry, Kind

from .draft import Draft
from .engine import Outcome, TryAgain

if TYPE_CHECKING:
    from .driver import RunDriver

Known = Entry | AttemptRow  # an outcome, or what a failed attempt leaves for the next one


def keep(driver: RunDriver, draft: Draft) -> set[int]:
    """Add to *draft* how attempts ended that wait to be delivered; return their seqs. Changes nothing of the driver."""
    kept: set[int] = set()
    for known in in_hand(driver):
        kept.add(known.seq)
        if isinstance(known, AttemptRow):
            draft.remember(known)
            continue
        draft.settle(known.seq)
        at = max(known.at, draft.entries[-1].at if draft.entries else 0)
        draft.record(known._replace(position=driver.run.position + len(draft.entries), at=at, transition=draft.id))
    return kept


def in_hand(driver: RunDriver) -> list[Known]:
    """Return how attempts ended that wait to be delivered, in the order they ended; entries have no position yet."""
    waiting = [each for each in chain(driver.queue, driver.aside) if isinstance(each, Outcome | TryAgain)]
    return [_known(driver, each) for each in waiting if driver.armed.get(each.work.command.seq) is each.work]


def alone(entries: Iterable[Entry], position: int) -> list[Entry]:
    """Return outcomes as they are recorded from *position* on without having been delivered."""
    placed: list[Entry] = []
    for entry in entries:
        at = max(entry.at, placed[-1].at if placed else 0)
        placed.append(entry._replace(position=position + len(placed), at=at, info=ALONE))
    return placed


def _known(driver: RunDriver, ended: Outcome | TryAgain) -> Known:
    if isinstance(ended, TryAgain):
        return ended.row
    command = ended.work.command
    at = max(driver.instance.now, driver.engine.store.estimated_now())
    return Entry(
        0, Kind.STEP, command.seq, command.name, ended.work.number, at, ended.failed, ended.body, command.digest, ALONE,
        driver.run.fence,
    )  # fmt: skip
