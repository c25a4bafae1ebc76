"""Stores: the contract, and which one a URL names."""

from __future__ import annotations

from typing import Final

from romulus.core.errors import ConfigurationError
from romulus.core.ports import Host

from .contract import Store
from .sqlite import Place, SQLiteStore, place_of
from .urls import without_secrets

DEFAULT_URL: Final = "sqlite:///romulus.db"
_refused: list[str] = []  # why no store opens in this process
FORMS: Final = (
    "write sqlite:///relative/path.db, sqlite:////absolute/path.db, sqlite:// (memory) or postgresql://user:password@host:5432/database"
)


def open_store(url: str | None, host: Host) -> Store:
    """Return the store that *url* names, not opened yet (`await store.open()` does that); None names the default.

    Raises:
        ConfigurationError: no store of this release has such a URL.
    """
    if _refused:
        raise ConfigurationError(_refused[0])
    url = DEFAULT_URL if url is None else url
    scheme, colon, rest = url.partition("://")
    if scheme in ("postgresql", "postgres") and colon:
        return _postgres(url, host)
    if scheme != "sqlite" or not colon:
        raise ConfigurationError(f"{without_secrets(url)!r} is not a store URL: {FORMS}")
    return SQLiteStore(_sqlite_place(url, rest, host), host)


def _postgres(url: str, host: Host) -> Store:
    try:
        from .postgres import PostgresStore, place_of
    except ModuleNotFoundError as error:
        raise ConfigurationError("PostgreSQL needs its driver: install romulus-engine[postgres]") from error
    return PostgresStore(place_of(url), host)


def _sqlite_place(url: str, rest: str, host: Host) -> Place:
    if not rest:
        return Place(f"/romulus-{host.random_bits(64):016x}", memory=True)
    if not rest.startswith("/") or rest in ("/", "//") or "?" in rest or "\0" in rest:
        raise ConfigurationError(f"{without_secrets(url)!r} is not a store URL: {FORMS}")
    return place_of(rest[1:])


def refuse_stores(reason: str) -> None:
    """Open no store in this process from here on: it only replays, whatever the user's code starts when it is imported."""
    _refused.append(reason)


__all__ = ["DEFAULT_URL", "open_store", "refuse_stores"]
