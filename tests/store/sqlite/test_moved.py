"""A database file that is moved, replaced or deleted while it is in use: nothing more is acknowledged that would be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from romulus.core.errors import StoreUnavailable
from romulus.store import open_store
from tests.store.kit import MovableHost, new_run


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
async def test_nothing_is_written_to_a_file_that_is_no_longer_there(tmp_path: Path, host: MovableHost, how: str) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    await store.start([new_run("kept")])
    if how == "deleted":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere.db")
    if how == "replaced":
        path.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="was moved, replaced or deleted"):
        await store.start([new_run("lost")])
    if how == "deleted":
        assert not path.exists()
    await store.close()


async def test_a_file_that_is_put_back_is_written_again(tmp_path: Path, host: MovableHost) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable):
        await store.start([new_run("r")])
    (tmp_path / "elsewhere.db").rename(path)

    await store.start([new_run("r")])

    assert await store.run("default", "r") is not None
    await store.close()
