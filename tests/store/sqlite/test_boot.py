"""One file is on one machine: another boot in a worker's row is an earlier boot of this one."""

from __future__ import annotations

from pathlib import Path

from romulus.store import open_store
from tests.store.kit import LEASE, PENDING, MovableHost, worker
from tests.store.life import StillHost


async def test_a_lease_of_another_boot_is_over_at_once(tmp_path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    (await store.register(worker(host, "w1", boot="before"), LEASE)).close()

    assert list((await store.sweep(10, PENDING)).dead) == ["w1"]
    await store.close()


async def test_another_lease_that_ends_in_the_same_moment_is_not_over_with_it(tmp_path: Path) -> None:
    host = StillHost()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    for name, boot in (("w1", "before"), ("w2", host.identity.boot)):
        (await store.register(worker(host, name, boot=boot), LEASE)).close()

    assert list((await store.sweep(10, PENDING)).dead) == ["w1"]
    assert {each.id: each.dead for each in await store.workers("default")} == {"w1": True, "w2": False}
    await store.close()
    host.close()
