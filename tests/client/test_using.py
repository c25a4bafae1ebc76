"""`client.using(connection)`: starts and events are part of the caller's own transaction."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from romulus import Client, ConfigurationError, RunConflict, RunNotFound, StoreUnavailable

from .world import app_at, total, working


async def test_a_start_is_there_with_the_callers_commit_and_gone_with_its_rollback(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        await client.runs()
        connection = apsw.Connection(str(tmp_path / "runs.db"))
        connection.set_busy_timeout(5_000)
        try:
            for word, there in (("ROLLBACK", False), ("COMMIT", True)):
                connection.execute("BEGIN IMMEDIATE").fetchall()
                handle = await client.using(connection).start(total.options(id="t"), 1)
                receipt = await client.using(connection).send_event("go", 1, correlation_id="t", event_id="e")
                assert not receipt.duplicate
                connection.execute(word).fetchall()
                assert len(await client.runs()) == len(await client.events()) == int(there)
            assert await client.get(handle.id, total).result(timeout=30) == 3
        finally:
            connection.close()


async def test_the_handle_of_a_start_outlives_the_callers_connection(tmp_path: Path) -> None:
    async with working(app_at(tmp_path)) as client:
        await client.runs()
        connection = apsw.Connection(str(tmp_path / "runs.db"))
        connection.set_busy_timeout(5_000)
        connection.execute("BEGIN IMMEDIATE").fetchall()
        handle = await client.using(connection).start(total.options(id="t"), 1)
        with pytest.raises(RunNotFound):
            await handle.describe()
        connection.execute("COMMIT").fetchall()
        connection.close()

        assert await handle.result(timeout=30) == 3


async def test_a_conflict_in_the_callers_transaction_leaves_it_usable(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        await client.start(total.options(id="t"), 1)
        connection = apsw.Connection(str(tmp_path / "runs.db"))
        connection.set_busy_timeout(5_000)
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
            with pytest.raises(RunConflict):
                await client.using(connection).start(total.options(id="t"), 2)
            await client.using(connection).start(total.options(id="u"), 2)
            connection.execute("COMMIT").fetchall()
        finally:
            connection.close()
        assert [run.id for run in await client.runs()] == ["t", "u"]


async def test_no_connection_is_refused_and_nothing_is_written_beside_the_transaction(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(ConfigurationError, match=r"using\(None\) would write outside of every transaction"):
            client.using(None)


async def test_a_connection_to_a_file_that_was_replaced_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file, away = tmp_path / "runs.db", tmp_path / "away.db"
    async with app_at(tmp_path).client() as client:
        await client.runs()
        connection = apsw.Connection(str(file))
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
            file.rename(away)
            file.touch()
            with pytest.raises(StoreUnavailable, match="moved, replaced or deleted"):
                await client.using(connection).start(total, 1)
            assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
        finally:
            connection.close()
            away.replace(file)


async def test_any_other_connection_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with app_at(tmp_path).client() as client:
        with pytest.raises(ConfigurationError, match="apsw.Connection"):
            await client.using(object()).start(total, 1)
        connection = apsw.Connection(str(tmp_path / "other.db"))
        try:
            with pytest.raises(ConfigurationError, match="the store is"):
                await client.using(connection).start(total, 1)
        finally:
            connection.close()


def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    with Client(app_at(tmp_path)) as client:
        client.runs()
        connection = apsw.Connection(str(tmp_path / "runs.db"))
        connection.set_busy_timeout(5_000)
        try:
            connection.execute("BEGIN IMMEDIATE").fetchall()
            client.using(connection).start(total.options(id="t"), 1)
            connection.execute("ROLLBACK").fetchall()
        finally:
            connection.close()
        with pytest.raises(RunNotFound):
            client.get("t").describe()
