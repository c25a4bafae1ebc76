"""The look at the file for commits of others goes on whatever one look meets."""

from __future__ import annotations

from typing import Any, cast

import apsw
import pytest

from romulus.core.errors import NotOurFile, StoreUnavailable
from romulus.store.sqlite.watching import MISSED_MAX, Watch
from romulus.store.sqlite.writer import Writer
from tests.store.kit import MovableHost


class Failing:
    """A writer on which every look fails."""

    def __init__(self, error: Exception) -> None:
        self.error, self.looks = error, 0

    def glance(self, look: Any) -> int | None:
        self.looks += 1
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), NotOurFile("another"), apsw.SchemaChangeError("changed")])
async def test_looks_go_on_after_one_that_failed_and_give_a_hint_now_and_then(host: MovableHost, error: Exception) -> None:
    writer = Failing(error)
    watch = Watch(cast("Writer", writer), host)
    changes = watch.changes()
    await anext(changes)
    assert writer.looks == MISSED_MAX
    await anext(changes)
    assert writer.looks == 2 * MISSED_MAX
    watch.close()
