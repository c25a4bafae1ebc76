"""One App in one loop is one open store, however many use it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import romulus
from romulus import AsyncClient, Client, ConfigurationError


@romulus.workflow
async def nothing() -> None:
    pass


def app_at(path: Path, **options: str) -> romulus.App:
    return romulus.App(f"sqlite:///{path / 'runs.db'}", workflows=[nothing], **options)  # type: ignore[arg-type]


async def test_worker_and_clients_in_one_loop_share_the_store_and_the_last_closes_it(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    async with app.worker(), app.client() as first, AsyncClient(app) as second:
        stores = {id(await client._link.store()) for client in (first, second)}
        assert stores == {id((await app.source.acquire()).store)}
        await app.source.release()
    assert app.source._shared == {}


async def test_opening_at_once_opens_once(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    opened = await asyncio.gather(*(app.source.acquire() for _ in range(10)))

    assert len({id(one.store) for one in opened}) == 1
    for _ in opened:
        await app.source.release()
    assert app.source._shared == {}


async def test_a_store_that_cannot_be_opened_is_tried_again_by_the_next_user(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file, not a directory")
    app = romulus.App(f"sqlite:///{tmp_path / 'there' / 'runs.db'}", workflows=[nothing])
    for _ in range(2):
        with pytest.raises(romulus.RomulusError):
            await app.client().runs()
    (tmp_path / "there").unlink()
    (tmp_path / "there").mkdir()

    async with app.client() as client:
        assert len(await client.runs()) == 0


async def test_a_client_of_another_loop_has_a_store_of_its_own(tmp_path: Path) -> None:
    app = app_at(tmp_path)

    def elsewhere() -> int:
        with Client(app) as client:
            return len(client.runs())

    async with app.client() as client:
        await client.start(nothing)
        assert await asyncio.to_thread(elsewhere) == 1


async def test_the_stores_absolute_path_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = app_at(tmp_path)
    with caplog.at_level(logging.INFO, logger="romulus"):
        for _ in range(2):
            async with app.client() as client:
                await client.runs()

    assert [record.getMessage() for record in caplog.records if "store" in record.getMessage()] == [
        f"store: sqlite:///{tmp_path / 'runs.db'}"
    ]


async def test_a_client_of_an_app_uses_its_namespace_unless_told_otherwise(tmp_path: Path) -> None:
    app = app_at(tmp_path, namespace="blue")
    async with (
        app.worker(),
        app.client() as blue,
        AsyncClient(app.source.url, namespace="blue") as same,
        AsyncClient(app.source.url) as other,
    ):
        await (await blue.start(nothing)).result(timeout=30)
        assert [len(await client.runs()) for client in (blue, same, other)] == [1, 1, 0]


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, 10**9])
def test_a_concurrency_that_makes_no_sense_is_refused(tmp_path: Path, bad: int) -> None:
    with pytest.raises(ConfigurationError, match="concurrency is"):
        app_at(tmp_path).worker(concurrency=bad)


def test_pools_are_names(tmp_path: Path) -> None:
    for bad in ("default", (), ("a\x00",)):
        with pytest.raises(romulus.RomulusError, match="pool"):
            app_at(tmp_path).worker(pools=bad)
