"""What about a database deserves a person's look: open transactions, dead rows, a pooler, commits that are not durable."""

from __future__ import annotations

from typing import Final, LiteralString

from .session import Session

OPEN_S: Final = 300  # a transaction open for longer keeps dead rows from being removed
DEAD_MIN: Final = 50_000  # dead rows of a table that are worth a word, if they outnumber the live ones

LONG: Final[LiteralString] = (
    "SELECT pid, coalesce(application_name, ''), state, extract(epoch FROM clock_timestamp() - xact_start)::integer FROM pg_stat_activity "
    "WHERE datname = current_database() AND xact_start < clock_timestamp() - make_interval(secs => $1) AND backend_type = 'client backend' "
    "ORDER BY xact_start LIMIT 5"
)
BLOATED: Final[LiteralString] = (
    "SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE schemaname = 'romulus' AND n_dead_tup >= $1 "
    "AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC LIMIT 5"
)
UNSAFE: Final[LiteralString] = (
    "SELECT name, setting FROM pg_settings WHERE (name IN ('fsync', 'full_page_writes') AND setting = 'off') "
    "OR (name = 'synchronous_commit' AND reset_val IN ('off', 'local')) ORDER BY name"
)
REMEDIES: Final = {
    "fsync": "fsync is off: a crash of the machine can lose or corrupt everything; turn it on",
    "full_page_writes": "full_page_writes is off: a crash of the machine can corrupt the database; turn it on",
    "synchronous_commit": "commits are asynchronous by default here: Romulus turns that off for itself, your own transactions given to "
    "`using` may be lost after they were acknowledged",
}


async def warnings(session: Session, pooled: bool, listening: bool | None) -> list[str]:
    """Return in words what is found; nothing: an empty list. *listening*: None where nobody has asked to hear of commits."""
    found = [
        f"process {pid} ({name or 'unnamed'}, {state}) has had a transaction open for {age} s: dead rows stay until it ends; "
        f"end it, or set "
        "idle_in_transaction_session_timeout"
        for pid, name, state, age in await session.rows("health.long", LONG, OPEN_S)
    ]
    found += [
        f"table romulus.{table} has {dead:,} dead rows beside {live:,} live ones: autovacuum does not keep up, look for long transactions"
        for table, dead, live in await session.rows("health.bloat", BLOATED, DEAD_MIN)
    ]
    found += [REMEDIES[name] for name, _ in await session.rows("health.unsafe", UNSAFE)]
    if pooled:
        found.append("a pooler in transaction mode stands between: other processes' commits are polled for, up to a second late")
    elif listening is False:
        found.append("notices of other processes are not heard now: they are polled for, up to a second late")
    return found
