"""The SQLite schema: final tables, each with the reason for its shape.

Times are µs since the epoch. `runs` is the narrow hot row that every guard reads; what is written once (input, result) lies in
`generations`, so that a step's transition rewrites little. The journal is append-only, with one small index. `queue_at` is set only
while a run may be claimed, so a step's transition touches no index of `runs`.
"""

from __future__ import annotations

from typing import Final, LiteralString

APPLICATION_ID: Final = 0x526F6D75  # "Romu" in the file's header
VERSION: Final = 4


TABLES: Final[tuple[LiteralString, ...]] = (
    # What the file is: schema version, incarnation.
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE runs (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL, id TEXT NOT NULL, workflow TEXT NOT NULL, version TEXT NOT NULL, status TEXT NOT NULL,
        generation INTEGER NOT NULL, generation_key INTEGER NOT NULL, position INTEGER NOT NULL, revision INTEGER NOT NULL,
        owner TEXT, fence INTEGER NOT NULL, cancel_seq INTEGER NOT NULL, cancel_reason TEXT NOT NULL,
        last_transition INTEGER NOT NULL, armed TEXT NOT NULL, losses INTEGER NOT NULL,
        wake_at INTEGER, lane INTEGER NOT NULL, queue_at INTEGER, priority INTEGER NOT NULL,
        digest TEXT NOT NULL, excluded TEXT NOT NULL, hold_kind TEXT NOT NULL, hold_reason TEXT NOT NULL,
        deadline INTEGER, attributes TEXT NOT NULL,
        created_at INTEGER NOT NULL, started_at INTEGER, updated_at INTEGER NOT NULL, finished_at INTEGER,
        depth INTEGER NOT NULL) STRICT""",
    "CREATE UNIQUE INDEX runs_id ON runs (namespace, id)",
    "CREATE INDEX runs_due ON runs (namespace, workflow, version, lane, queue_at) WHERE queue_at IS NOT NULL",
    "CREATE INDEX runs_lossy ON runs (namespace, workflow, version, queue_at) WHERE queue_at IS NOT NULL AND losses > 0",
    "CREATE INDEX runs_owner ON runs (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX runs_held ON runs (namespace, workflow, version) WHERE hold_kind <> ''",
    """CREATE TABLE generations (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, number INTEGER NOT NULL,
        workflow TEXT NOT NULL, version TEXT NOT NULL, input BLOB NOT NULL, input_digest BLOB NOT NULL, seeds TEXT NOT NULL,
        started_at INTEGER, ended_at INTEGER, result BLOB, failure BLOB, timeout INTEGER, ended_by INTEGER) STRICT""",
    "CREATE UNIQUE INDEX generations_run ON generations (run, number)",
    """CREATE TABLE journal (
        generation INTEGER NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL,
        attempt INTEGER NOT NULL, at INTEGER NOT NULL, failed INTEGER NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL,
        info TEXT NOT NULL, fence INTEGER NOT NULL, transition INTEGER NOT NULL) STRICT""",
    "CREATE UNIQUE INDEX journal_position ON journal (generation, position)",
    """CREATE TABLE attempts (
        generation INTEGER NOT NULL, seq INTEGER NOT NULL, digest TEXT NOT NULL, number INTEGER NOT NULL, failures INTEGER NOT NULL,
        losses INTEGER NOT NULL, due INTEGER NOT NULL, error BLOB NOT NULL, heartbeat BLOB NOT NULL,
        PRIMARY KEY (generation, seq)) STRICT, WITHOUT ROWID""",
    # Oldest first is by key. `event` is the match: set by a guarded update, given back by DELETE … RETURNING.
    """CREATE TABLE waits (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, seq INTEGER NOT NULL,
        namespace TEXT NOT NULL, name TEXT NOT NULL, correlation_id TEXT NOT NULL, deadline INTEGER,
        shared INTEGER NOT NULL, include_late INTEGER NOT NULL, opened_at INTEGER NOT NULL, event INTEGER) STRICT""",
    "CREATE UNIQUE INDEX waits_run ON waits (run, seq)",
    "CREATE INDEX waits_open ON waits (namespace, name, correlation_id, key) WHERE event IS NULL",
    "CREATE INDEX waits_event ON waits (event) WHERE event IS NOT NULL",
    """CREATE TABLE events (
        arrival INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, id TEXT NOT NULL,
        name TEXT NOT NULL, correlation_id TEXT NOT NULL, payload BLOB NOT NULL, digest BLOB NOT NULL, received_at INTEGER NOT NULL,
        state TEXT NOT NULL, run INTEGER) STRICT""",
    "CREATE UNIQUE INDEX events_id ON events (namespace, id)",
    "CREATE INDEX events_unmatched ON events (namespace, name, correlation_id, arrival) WHERE state = 'unmatched'",
    # An event that lost against a run's deadline: no later wait of that run is offered it, unless it asks.
    "CREATE TABLE late (event INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (event, run)) STRICT, WITHOUT ROWID",
    # A child belongs to the generation that started it; `on_close` is cancel, terminate, abandon or, once asked to end, closed or stopped.
    """CREATE TABLE children (
        child INTEGER PRIMARY KEY, parent INTEGER NOT NULL, generation INTEGER NOT NULL, seq INTEGER NOT NULL,
        on_close TEXT NOT NULL) STRICT""",
    "CREATE INDEX children_generation ON children (generation, seq)",
    # What a run is told by others: inserted by their transitions, deleted by its own. Keys grow, so that none is taken twice.
    """CREATE TABLE inbox (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, about TEXT NOT NULL, seq INTEGER NOT NULL,
        failed INTEGER NOT NULL, body BLOB NOT NULL, info TEXT NOT NULL) STRICT""",
    "CREATE INDEX inbox_run ON inbox (run, key)",
    # An operation is a record of its own: settled also after its run has ended. `due` is set while it is to be settled and nobody does.
    """CREATE TABLE operations (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, namespace TEXT NOT NULL, run INTEGER NOT NULL,
        generation INTEGER NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, arguments BLOB NOT NULL,
        idempotent INTEGER NOT NULL, key_lifetime INTEGER, settle INTEGER NOT NULL, timeout INTEGER NOT NULL, has_lookup INTEGER NOT NULL,
        state TEXT NOT NULL, sends INTEGER NOT NULL, owner TEXT, fence INTEGER NOT NULL, by_run INTEGER NOT NULL,
        first_sent_at INTEGER, may_leave_until INTEGER NOT NULL, due INTEGER, looks INTEGER NOT NULL, cleared INTEGER NOT NULL,
        seen_applied INTEGER NOT NULL, awaited INTEGER NOT NULL, hold_reason TEXT NOT NULL, failed INTEGER NOT NULL, body BLOB NOT NULL,
        created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, ended_at INTEGER) STRICT""",
    "CREATE UNIQUE INDEX operations_id ON operations (id)",
    "CREATE UNIQUE INDEX operations_generation ON operations (generation, seq)",
    "CREATE INDEX operations_owner ON operations (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX operations_due ON operations (namespace, due) WHERE due IS NOT NULL",
    # What was learned of an operation beyond a plain success: append-only.
    """CREATE TABLE operation_notes (
        key INTEGER PRIMARY KEY, operation INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
        state TEXT NOT NULL, detail TEXT NOT NULL, body BLOB NOT NULL) STRICT""",
    "CREATE INDEX operation_notes_operation ON operation_notes (operation, key)",
    # One attempt at a step of a pool. `due` is set while it is queued; `owner` and `lease_until`, on the machine's monotonic clock, while
    # it is claimed. A key is never given twice, so that a report under it can only ever meet this attempt.
    """CREATE TABLE pool_attempts (
        key INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, run INTEGER NOT NULL, generation INTEGER NOT NULL,
        seq INTEGER NOT NULL, pool TEXT NOT NULL, step TEXT NOT NULL, digest TEXT NOT NULL, arguments BLOB NOT NULL,
        number INTEGER NOT NULL, timeout INTEGER, heartbeat_timeout INTEGER, heartbeat BLOB NOT NULL, state TEXT NOT NULL,
        owner TEXT, fence INTEGER NOT NULL, lease_until INTEGER, due INTEGER, claimed_at INTEGER, beat_at INTEGER) STRICT""",
    "CREATE UNIQUE INDEX pool_attempts_generation ON pool_attempts (generation, seq)",
    "CREATE INDEX pool_attempts_owner ON pool_attempts (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX pool_attempts_due ON pool_attempts (namespace, pool, due) WHERE due IS NOT NULL",
    # Queues: inserted beside what they speak of, consumed by whoever comes first.
    "CREATE TABLE to_match (key INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, correlation_id TEXT NOT NULL) STRICT",
    "CREATE TABLE wakes (key INTEGER PRIMARY KEY, run INTEGER NOT NULL) STRICT",
    # Children to be closed: all of a generation by their own `on_close`, or one (seq) as the request says.
    "CREATE TABLE to_close (key INTEGER PRIMARY KEY, generation INTEGER NOT NULL, seq INTEGER, how TEXT, reason TEXT) STRICT",
    """CREATE TABLE workers (
        id TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL,
        pid_start TEXT NOT NULL, pid_namespace TEXT NOT NULL, workflows TEXT NOT NULL, pools TEXT NOT NULL, concurrency INTEGER NOT NULL,
        started_at INTEGER NOT NULL, renewed_at INTEGER NOT NULL, lease_until INTEGER NOT NULL,
        dead INTEGER NOT NULL, stopping INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE evidence (
        key INTEGER PRIMARY KEY, run INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL,
        fence INTEGER NOT NULL, detail TEXT NOT NULL) STRICT""",
    "CREATE INDEX evidence_run ON evidence (run, key)",
)

# Schema 2: what a restore has to know.
RESTORING: Final[tuple[LiteralString, ...]] = (
    # Which workflows may call operations, as their workers say: after a restore, runs of these may have sent some that are not there.
    """CREATE TABLE operating (
        namespace TEXT NOT NULL, workflow TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (namespace, workflow, version))
        STRICT, WITHOUT ROWID""",
    # Runs of before a restore, and their children: see `core.record.Doubt`.
    "CREATE TABLE doubts (run INTEGER PRIMARY KEY, since INTEGER NOT NULL, restored_at INTEGER NOT NULL) STRICT",
    # Operations whose first send is none that their row knows: it may have been made before a restore.
    "CREATE TABLE doubted (operation INTEGER PRIMARY KEY) STRICT",
)

# Schema 3: operations that workers of a pool send and settle.
POOLED_OPERATIONS: Final[tuple[LiteralString, ...]] = (
    "ALTER TABLE operations ADD COLUMN pool TEXT NOT NULL DEFAULT 'default'",
    # Entries that the code had seen when it asked: a fork from there on would ask again.
    "ALTER TABLE operations ADD COLUMN position INTEGER NOT NULL DEFAULT 0",
    # `due` is set, too, while an operation is queued in a pool and nobody has claimed it; those are kept out of the settlers' way.
    "DROP INDEX operations_due",
    "CREATE INDEX operations_due ON operations (namespace, pool, due) WHERE due IS NOT NULL AND state <> 'queued'",
    "CREATE INDEX operations_queued ON operations (namespace, pool, due) WHERE due IS NOT NULL AND state = 'queued'",
    # What each worker has the code of: [[name, whether it has a lookup], …].
    "ALTER TABLE workers ADD COLUMN operations TEXT NOT NULL DEFAULT '[]'",
)

# Schema 4: what an unfinished command is called, for people. A table of its own: workers of schema 3 name no columns as they insert
# an attempt, so one column more would refuse them. The trigger deletes for them, too; `INSERT OR REPLACE` does not fire it.
NAMED_ATTEMPTS: Final[tuple[LiteralString, ...]] = (
    """CREATE TABLE attempt_names (
        generation INTEGER NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (generation, seq)) STRICT, WITHOUT ROWID""",
    """CREATE TRIGGER attempts_deleted AFTER DELETE ON attempts
        BEGIN DELETE FROM attempt_names WHERE generation = old.generation AND seq = old.seq; END""",
)
