"""What an error of the driver or the server means for the caller: retry at once, unavailable, unknown, or ours to fix."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import asyncpg

from romulus.core.errors import ConfigurationError, StoreError, StoreUnavailable
from romulus.store.contract import RowsLocked

# The connection is of no further use, and an answer that was on its way is lost.
LOST: Final[tuple[type[BaseException], ...]] = (
    OSError, EOFError, TimeoutError, asyncio.TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError,
)  # fmt: skip
LOCKED: Final = "55P03"  # a lock was not given in time
CLASH_STATES: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock: undone, try again at once
# The server ends the session; where that falls beside COMMIT the transaction may have been applied.
ENDED_STATES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
# Undone for now: locks, statement timeouts, resources, a standby, missing rights, a pooler. All go away without a change of the request.
WAIT_STATES: Final = frozenset({LOCKED, "57014", "25006", "42501", "3F000", "42P01", "42P05", "26000"})
WAIT_CLASSES: Final = frozenset({"53", "57", "58", "08", "XX"})
POOLED: Final = "a pooler in transaction mode stands between: leave `pooler=` out of the URL, or say pooler=transaction"
REMEDIES: Final = {
    "25006": "the server is a standby or read-only: name the primary",
    "42501": "this role lacks the rights: grant them on schema romulus, or use the role that migrated it",
    "53100": "the server's disk is full",
    "53300": "the server has no connection left: raise max_connections, or lower `connections` in the URL's clients",
    "3F000": "the schema romulus is missing: run `romulus migrate`",
    "42P01": "a table of schema romulus is missing: run `romulus migrate`",
    LOCKED: "a lock was not given in time: another transaction holds the rows",
    "42P05": POOLED,
    "26000": POOLED,
}
# Errors of connecting that a person must fix, whatever the network does.
CONFIGURED_WRONGLY: Final = {
    "28P01": "the password is wrong",
    "28000": "the server does not let this user in (see its pg_hba.conf)",
    "42501": "this role may not connect to this database: GRANT CONNECT on it",
    "3D000": "there is no such database: create it",
    "42704": "an option of the URL is none of the driver's or the server's",
    "22023": "an option of the URL has a value the server does not take",
    "42P05": POOLED,
    "26000": POOLED,
}
# Errors of connecting that end without a change of the request.
SHUT: Final = {
    "08P01": "the pooler that stands between lets nobody in now: see its log, and its max_client_conn",
    "53300": REMEDIES["53300"],
    "55000": "the database takes no connections now: see its ALLOW_CONNECTIONS",
}
# Whatever a pooler refuses has one state. What it would never take is told apart by its words alone.
POOLER: Final = "08P01"
NEVER_TAKEN: Final = re.compile(r"unsupported|pooling mode")
NOT_THIS_WAY: Final = (
    "what stands between here and the server refuses what is asked at connect: a pooler has to be in transaction or session mode"
)


def is_clash(error: BaseException) -> bool:
    """Return whether *error* undid the transaction for the sake of another one: the same again will do."""
    return isinstance(error, (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)) or state_of(error) in CLASH_STATES


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is gone, and with it the answer to what was last sent."""
    if isinstance(error, LOST):
        return not isinstance(error, asyncpg.DataError)
    state = state_of(error)
    return state in ENDED_STATES or state.startswith("08")


def unavailable(error: BaseException, shown: str) -> StoreUnavailable | None:
    """Return what to raise for an error that ended with nothing written and may go away; None: it is about the request itself."""
    state = state_of(error)
    if not is_lost(error) and state not in WAIT_STATES and state[:2] not in WAIT_CLASSES and state not in CLASH_STATES:
        return None
    remedy = REMEDIES.get(state, "the server cannot be reached or answer now")
    kind = RowsLocked if state == LOCKED else StoreUnavailable
    return kind(f"{shown}: {remedy} ({text_of(error)})")


def at_connect(error: BaseException, shown: str) -> StoreError | ConfigurationError:
    """Return what to raise for an error of connecting."""
    told = error.__cause__ if isinstance(error, asyncpg.ConnectionDoesNotExistError) and error.__cause__ is not None else error
    state = state_of(told)  # what was said before the connection was closed tells more than that it was
    remedy = NOT_THIS_WAY if state == POOLER and NEVER_TAKEN.search(str(told)) else CONFIGURED_WRONGLY.get(state)
    if remedy is not None:
        return ConfigurationError(f"{shown}: {remedy} ({text_of(told)})")
    if isinstance(error, (asyncpg.ClientConfigurationError, asyncpg.UnsupportedServerFeatureError)):
        return ConfigurationError(f"{shown}: the URL cannot be used ({text_of(error)})")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnavailable(f"{shown}: no host takes writes now: each that answers is a standby or read-only")
    return StoreUnavailable(f"{shown}: {SHUT.get(state, 'cannot connect: check host, port and network')} ({text_of(told)})")


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of an error, "" where it has none. psycopg calls it `sqlstate` as well."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def text_of(error: BaseException) -> str:
    """Return one line about an error."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__
