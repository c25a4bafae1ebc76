"""Wrong URLs, absent servers and old ones: one clear error, and no password in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from romulus.core.errors import ConfigurationError, StoreUnavailable
from romulus.host.real import RealHost
from romulus.store import open_store
from romulus.store.postgres import checked, driver, place_of, sql_for
from romulus.store.urls import without_secrets
from tests.postgres.kit import opened
from tests.postgres.server import Database, free_port
from tests.store.kit import MovableHost


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:p@h:port/db", "cannot be read"),
        ("postgresql://u:p w@h/db", "holds a space"),
        ("postgresql://u:p#w@h/db", "%23"),
        ("postgresql://u:p/w@h/db", "cannot be read; in a password write '/' as %2F"),
        ("postgresql://u:1/w@h/db", "has an '@' behind its host"),
        ("postgresql://h/db?pooler=maybe", "one of none, session, transaction"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        place_of(url)


@pytest.mark.parametrize(
    "url", ["postgres://ann:se%40cret@h:5/db?password=secret&sslmode=require", "postgresql://ann:secret@h:5/db?sslmode=require"]
)
def test_the_password_is_never_shown(url: str) -> None:
    assert place_of(url).shown == "postgresql://ann@h:5/db?sslmode=require"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://ann:hunter2@h/db", "POSTGRESQL://ann:hunter2@h/db", "mysql://ann:hunter2@h/db", "mysql://h/db?password=hunter2",
        "postgresql:/ann:hunter2@h/db", "ann:hunter2@h/db", "sqlite://ann:hunter2@h/db", "postgresql://ann:hun/ter2@h/db",
        "postgresql://ann:hun?ter2@h/db", "postgresql://ann:hunter2/x@h/db", "postgresql://ann:5/hunter2@h/db", "postgresql://ann:[hunter2@h/db",
        "postgresql://ann:hunter2@h:port/db", "postgresql://ann:hunter2#x@h/db", "postgresql://ann:hun ter2@h/db",
    ],
)  # fmt: skip
async def test_a_url_that_is_misspelt_is_refused_without_its_password(url: str) -> None:
    host = RealHost()
    with pytest.raises(ConfigurationError) as refused:
        open_store(url, host)
    host.close()

    assert "hun" not in str(refused.value)
    assert "ter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:hunter2@h/db", "postgresql://ann:***@h/db"),
        ("postgresql://ann:hun:t@er/2@h/db", "postgresql://ann:***@h/db"),
        ("postgresql://ann@h/db?PASSWORD=hunter2&sslmode=require", "postgresql://ann@h/db?PASSWORD=***&sslmode=require"),
        ("postgresql://h/db?password=a@b", "postgresql://h/db?password=***"),
        ("sqlite:///romulus.db", "sqlite:///romulus.db"),
        ("sqlite://", "sqlite://"),
        ("romulus.db", "romulus.db"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret_in_it(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


async def test_the_stores_url_names_no_password() -> None:
    host = RealHost()
    assert open_store("postgresql://ann:secret@h:5/db", host).url == "postgresql://ann@h:5/db"
    host.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect: check host, port and network"):
        await open_and_close(f"postgresql://ann:secret@127.0.0.1:{free_port()}/db")


async def test_a_database_that_is_not_there_is_named(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="no such database: create it"):
        await open_and_close(database.server.url("nothing_here"))


async def test_a_server_that_is_too_old_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SERVER_MIN", 990_000)
    with pytest.raises(ConfigurationError, match="at least 99 is needed"):
        await open_and_close(database.url)


async def test_an_option_the_server_does_not_know_is_a_setting_to_correct(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="none of the driver's or the server's"):
        await open_and_close(database.url + "?no_such_option=1")


async def test_a_database_in_another_encoding_is_refused_before_anything_is_made(database: Database, host: MovableHost) -> None:
    database.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    url = database.server.url("latin")
    for look in (open_and_close(url), checked(url, host), sql_for(url, host)):
        with pytest.raises(ConfigurationError, match="the database's encoding is LATIN1.*create one with ENCODING 'UTF8'"):
            await look
    database.execute("DROP DATABASE latin")


async def test_a_database_that_lets_nobody_in_is_told_of_with_the_remedy(own_database: Database) -> None:
    own_database.execute("CREATE ROLE outsider LOGIN")
    own_database.execute(f"REVOKE CONNECT ON DATABASE {own_database.name} FROM PUBLIC")
    with pytest.raises(ConfigurationError, match="this role may not connect to this database: GRANT CONNECT"):
        await open_and_close(own_database.url.replace("postgres@", "outsider@"))

    with own_database.server.connect() as other:
        other.execute("DROP ROLE outsider")
        other.execute(f"ALTER DATABASE {own_database.name} ALLOW_CONNECTIONS false".encode())
    with pytest.raises(StoreUnavailable, match="takes no connections now: see its ALLOW_CONNECTIONS"):
        await open_and_close(own_database.url)


@pytest.fixture
async def guarded(database: Database) -> AsyncIterator[Callable[[str], str]]:
    """Give the URL of a role that has to tell its password, which is "right"."""
    rules = database.server.data / "pg_hba.conf"
    before = rules.read_text()
    database.execute("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'right'")
    rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    database.execute("SELECT pg_reload_conf()")
    yield lambda password: database.url.replace("postgres@", f"guarded{password and ':'}{password}@")
    rules.write_text(before)
    database.execute("SELECT pg_reload_conf()")
    database.execute("DROP ROLE guarded")


async def test_a_wrong_password_is_said_to_be_wrong_and_not_shown(guarded: Callable[[str], str]) -> None:
    for password in ("wrong-one", ""):
        with pytest.raises(ConfigurationError, match="the password is wrong") as refused:
            await asked_for_a_password(guarded(password))
        assert "wrong-one" not in str(refused.value)
    await open_and_close(guarded("right"))


async def asked_for_a_password(url: str) -> None:
    """Connect until the server has read its new rules."""
    while True:
        await open_and_close(url)


async def open_and_close(url: str) -> None:
    async with opened(url):
        pass
