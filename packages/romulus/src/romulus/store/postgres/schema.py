"""The PostgreSQL schema: final tables, each with the reason for its shape.

Everything lies in the schema `romulus`, beside the user's own tables. Times are µs since the epoch. Every table of a run leads with
the run's key, so that a store may be sharded by it; the tables of events lead with namespace, name and correlation ID.
`runs` is the narrow hot row that every guard reads: an advance touches no indexed column (HOT). `queue_at` is set only while a run
may be claimed. Nothing here is updated by a batch but the runs it owns and their waits: what it does to others is insert-only.
"""

from __future__ import annotations

from typing import Final, LiteralString

VERSION: Final = 4
COMPATIBLE: Final = 1  # the oldest schema version whose release still works on this one
GENERATION_BITS: Final = 24  # of a generation's key: the rest is the run's key

TABLES: Final[tuple[LiteralString, ...]] = (
    "CREATE SCHEMA IF NOT EXISTS romulus",
    # The store's one clock: µs since the epoch, read anew at each call.
    "CREATE FUNCTION romulus.clock() RETURNS bigint LANGUAGE sql AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$",
    # The transaction that asks: of what stands in a queue or a list, which one put it there (`queued_by`), so that a look finds what
    # the look before did not see (`floors`).
    "CREATE FUNCTION romulus.xid() RETURNS bigint LANGUAGE sql AS $$ SELECT pg_current_xact_id()::text::bigint $$",
    # What the store is: schema version, the oldest version that works on it, incarnation.
    "CREATE TABLE romulus.meta (name text NOT NULL PRIMARY KEY, value text NOT NULL)",
    "CREATE SEQUENCE romulus.run_keys",
    """CREATE TABLE romulus.runs (
        key bigint NOT NULL PRIMARY KEY, revision bigint NOT NULL, fence bigint NOT NULL, last_transition bigint NOT NULL,
        wake_at bigint, queue_at bigint, queued_by bigint NOT NULL DEFAULT romulus.xid(), deadline bigint,
        created_at bigint NOT NULL, started_at bigint, updated_at bigint NOT NULL,
        finished_at bigint, generation integer NOT NULL, position integer NOT NULL, cancel_seq integer NOT NULL, losses integer NOT NULL,
        lane integer NOT NULL, priority integer NOT NULL, depth integer NOT NULL, namespace text NOT NULL, id text NOT NULL,
        workflow text NOT NULL, version text NOT NULL, status text NOT NULL, owner text, cancel_reason text NOT NULL, armed text
        NOT NULL, digest text NOT NULL,
        excluded text NOT NULL, hold_kind text NOT NULL, hold_reason text NOT NULL, attributes text NOT NULL) WITH (fillfactor = 60)""",
    "CREATE UNIQUE INDEX runs_id ON romulus.runs (namespace, id)",
    "CREATE INDEX runs_listed ON romulus.runs (namespace, key)",
    # The namespace as an expression: a look at a queue can use its own index and no other, whatever statistics say.
    "CREATE INDEX runs_due ON romulus.runs ((namespace || ''), workflow, version, lane, queue_at, key) WHERE queue_at IS NOT NULL",
    # For looks at what is new alone: where hardly any run was queued, statistics once had all looks walk through it.
    "CREATE INDEX runs_queued ON romulus.runs (queued_by) WHERE (queue_at + 0) IS NOT NULL",
    """CREATE INDEX runs_lossy ON romulus.runs (('' || namespace), workflow, version, queue_at, key)
        WHERE queue_at IS NOT NULL AND losses > 0""",
    "CREATE INDEX runs_owner ON romulus.runs (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX runs_held ON romulus.runs (namespace, workflow, version) WHERE hold_kind <> ''",
    """CREATE TABLE romulus.generations (
        run bigint NOT NULL, started_at bigint, ended_at bigint, timeout bigint, number integer NOT NULL, ended_by integer,
        workflow text NOT NULL, version text NOT NULL, seeds text NOT NULL, input bytea NOT NULL, input_digest bytea NOT NULL,
        result bytea, failure bytea, PRIMARY KEY (run, number)) WITH (fillfactor = 80)""",
    # Append-only, with one small index.
    """CREATE TABLE romulus.journal (
        run bigint NOT NULL, at bigint NOT NULL, fence bigint NOT NULL, transition bigint NOT NULL, generation integer NOT NULL,
        position integer NOT NULL, seq integer NOT NULL, attempt integer NOT NULL, failed boolean NOT NULL, kind text NOT NULL,
        name text NOT NULL, info text NOT NULL, digest bytea NOT NULL, body bytea NOT NULL)""",
    "CREATE UNIQUE INDEX journal_position ON romulus.journal (run, generation, position)",
    """CREATE TABLE romulus.attempts (
        run bigint NOT NULL, due bigint NOT NULL, generation integer NOT NULL, seq integer NOT NULL, number integer NOT NULL,
        failures integer NOT NULL, losses integer NOT NULL, digest text NOT NULL, error bytea NOT NULL, heartbeat bytea NOT NULL,
        PRIMARY KEY (run, generation, seq))""",
    # Oldest first is by key. `event` is the match: set by a guarded update here and nowhere else, given back by DELETE … RETURNING.
    """CREATE TABLE romulus.waits (
        key bigint GENERATED ALWAYS AS IDENTITY, run bigint NOT NULL, event bigint, deadline bigint, opened_at bigint NOT NULL,
        seq integer NOT NULL, shared boolean NOT NULL, include_late boolean NOT NULL, namespace text NOT NULL, name text NOT NULL,
        correlation_id text NOT NULL, PRIMARY KEY (run, seq))""",
    "CREATE INDEX waits_open ON romulus.waits (namespace, name, correlation_id, key) WHERE event IS NULL",
    "CREATE INDEX waits_event ON romulus.waits (event) WHERE event IS NOT NULL",
    "CREATE INDEX waits_listed ON romulus.waits (namespace, key)",
    "CREATE SEQUENCE romulus.arrivals",
    """CREATE TABLE romulus.events (
        arrival bigint NOT NULL PRIMARY KEY, received_at bigint NOT NULL, namespace text NOT NULL, id text NOT NULL,
        name text NOT NULL, correlation_id text NOT NULL, digest bytea NOT NULL, payload bytea NOT NULL)""",
    "CREATE UNIQUE INDEX events_id ON romulus.events (namespace, id)",
    "CREATE INDEX events_listed ON romulus.events (namespace, arrival)",
    # Events that wait for a wait: inserted with the event, then touched by matchers only, under the lock of their queue.
    """CREATE TABLE romulus.unmatched (
        namespace text NOT NULL, name text NOT NULL, correlation_id text NOT NULL, arrival bigint NOT NULL,
        PRIMARY KEY (namespace, name, correlation_id, arrival))""",
    # What became of an event at a run: consumed, bad (it did not fit), or late (it lost against a deadline).
    "CREATE TABLE romulus.dealt (event bigint NOT NULL, run bigint NOT NULL, how text NOT NULL, PRIMARY KEY (event, run, how))",
    # Queues: inserted beside what they speak of, consumed after that is committed. `event`: one that a closed wait may have given back.
    """CREATE TABLE romulus.to_match (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace text NOT NULL, name text NOT NULL, correlation_id text NOT NULL,
        event bigint, queued_by bigint NOT NULL DEFAULT romulus.xid())""",
    "CREATE INDEX to_match_queued ON romulus.to_match (queued_by)",
    "CREATE INDEX to_match_returned ON romulus.to_match (namespace, name, correlation_id) WHERE event IS NOT NULL",
    """CREATE TABLE romulus.wakes (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run bigint NOT NULL, queued_by bigint NOT NULL DEFAULT romulus.xid())""",
    "CREATE INDEX wakes_queued ON romulus.wakes (queued_by)",
    # A child belongs to the generation that started it; `on_close` is cancel, terminate, abandon or, once asked to end, closed or stopped.
    """CREATE TABLE romulus.children (
        child bigint NOT NULL PRIMARY KEY, parent bigint NOT NULL, generation integer NOT NULL, seq integer NOT NULL,
        on_close text NOT NULL)""",
    "CREATE INDEX children_generation ON romulus.children (parent, generation, seq)",
    # What a run is told by others: inserted by their transitions, deleted by its own. A child's message says which child, and the reader
    # finds the command that it belongs to now: nothing is lost between a child's end and its becoming another generation's.
    """CREATE TABLE romulus.inbox (
        key bigint GENERATED ALWAYS AS IDENTITY, run bigint NOT NULL, child bigint, seq integer NOT NULL, failed boolean NOT NULL,
        about text NOT NULL, info text NOT NULL, body bytea NOT NULL, PRIMARY KEY (run, key))""",
    # An operation is a record of its own: settled also after its run has ended. `due` is set while it is to be settled and nobody does.
    """CREATE TABLE romulus.operations (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run bigint NOT NULL, fence bigint NOT NULL, key_lifetime bigint,
        settle bigint NOT NULL, timeout bigint NOT NULL, first_sent_at bigint, may_leave_until bigint NOT NULL, due bigint,
        created_at bigint NOT NULL, updated_at bigint NOT NULL, ended_at bigint, generation integer NOT NULL, seq integer NOT NULL,
        sends integer NOT NULL, looks integer NOT NULL, idempotent boolean NOT NULL, has_lookup boolean NOT NULL, by_run boolean NOT NULL,
        cleared boolean NOT NULL, seen_applied boolean NOT NULL, awaited boolean NOT NULL, failed boolean NOT NULL, id text NOT NULL,
        namespace text NOT NULL, name text NOT NULL, digest text NOT NULL, state text NOT NULL, owner text, hold_reason text NOT NULL,
        arguments bytea NOT NULL, body bytea NOT NULL)""",
    "CREATE UNIQUE INDEX operations_id ON romulus.operations (id)",
    "CREATE UNIQUE INDEX operations_generation ON romulus.operations (run, generation, seq)",
    "CREATE INDEX operations_owner ON romulus.operations (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX operations_due ON romulus.operations (namespace, due) WHERE due IS NOT NULL",
    "CREATE INDEX operations_listed ON romulus.operations (namespace, key)",
    # What was learned of an operation beyond a plain success: append-only.
    """CREATE TABLE romulus.operation_notes (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, operation bigint NOT NULL, at bigint NOT NULL, kind text NOT NULL,
        who text NOT NULL, state text NOT NULL, detail text NOT NULL, body bytea NOT NULL)""",
    "CREATE INDEX operation_notes_operation ON romulus.operation_notes (operation, key)",
    # One attempt at a step of a pool. `due` is set while it is queued, `owner` and `lease_until` while it is claimed. A key is never given
    # twice, so that a report under it can only ever meet this attempt.
    """CREATE TABLE romulus.pool_attempts (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run bigint NOT NULL, fence bigint NOT NULL, timeout bigint,
        heartbeat_timeout bigint, lease_until bigint, due bigint, claimed_at bigint, beat_at bigint, generation integer NOT NULL,
        seq integer NOT NULL, number integer NOT NULL, namespace text NOT NULL, pool text NOT NULL, step text NOT NULL,
        digest text NOT NULL, state text NOT NULL, owner text, arguments bytea NOT NULL, heartbeat bytea NOT NULL)""",
    "CREATE UNIQUE INDEX pool_attempts_generation ON romulus.pool_attempts (run, generation, seq)",
    "CREATE INDEX pool_attempts_owner ON romulus.pool_attempts (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX pool_attempts_due ON romulus.pool_attempts (namespace, pool, due, key) WHERE due IS NOT NULL",
    # Children to be closed: all of a generation by their own `on_close`, or one (seq) as the request says.
    """CREATE TABLE romulus.to_close (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent bigint NOT NULL, generation integer NOT NULL, seq integer, how text,
        reason text, queued_by bigint NOT NULL DEFAULT romulus.xid())""",
    "CREATE INDEX to_close_queued ON romulus.to_close (queued_by)",
    """CREATE TABLE romulus.workers (
        id text NOT NULL PRIMARY KEY, namespace text NOT NULL, name text NOT NULL, host text NOT NULL, boot text NOT NULL,
        pid bigint NOT NULL, pid_start text NOT NULL, pid_namespace text NOT NULL, workflows text NOT NULL, pools text NOT NULL,
        concurrency integer NOT NULL, started_at bigint NOT NULL, renewed_at bigint NOT NULL, lease_until bigint NOT NULL,
        dead boolean NOT NULL, stopping boolean NOT NULL) WITH (fillfactor = 50)""",
    """CREATE TABLE romulus.evidence (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run bigint NOT NULL, at bigint NOT NULL, fence bigint NOT NULL,
        kind text NOT NULL, owner text NOT NULL, detail text NOT NULL)""",
    "CREATE INDEX evidence_run ON romulus.evidence (run, key)",
    # Rows that come and go quickly: vacuumed before they are a fifth of the table.
    "ALTER TABLE romulus.runs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.waits SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.unmatched SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.to_match SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.wakes SET (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.pool_attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
    "ALTER TABLE romulus.attempts SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
)

# Schema 2: what a restore has to know.
RESTORING: Final[tuple[LiteralString, ...]] = (
    # Which workflows may call operations, as their workers say: after a restore, runs of these may have sent some that are not there.
    """CREATE TABLE romulus.operating (
        namespace text NOT NULL, workflow text NOT NULL, version text NOT NULL, PRIMARY KEY (namespace, workflow, version))""",
    # Runs of before a restore, and their children: see `core.record.Doubt`.
    "CREATE TABLE romulus.doubts (run bigint NOT NULL PRIMARY KEY, since bigint NOT NULL, restored_at bigint NOT NULL)",
    # Operations whose first send is none that their row knows: it may have been made before a restore.
    "CREATE TABLE romulus.doubted (operation bigint NOT NULL PRIMARY KEY)",
)

# Schema 3: operations that workers of a pool send and settle.
POOLED_OPERATIONS: Final[tuple[LiteralString, ...]] = (
    "ALTER TABLE romulus.operations ADD COLUMN pool text NOT NULL DEFAULT 'default'",
    # Entries that the code had seen when it asked: a fork from there on would ask again.
    "ALTER TABLE romulus.operations ADD COLUMN position integer NOT NULL DEFAULT 0",
    # `due` is set, too, while an operation is queued in a pool and nobody has claimed it; those are kept out of the settlers' way.
    "DROP INDEX romulus.operations_due",
    "CREATE INDEX operations_due ON romulus.operations (namespace, pool, due) WHERE due IS NOT NULL AND state <> 'queued'",
    "CREATE INDEX operations_queued ON romulus.operations (namespace, pool, due) WHERE due IS NOT NULL AND state = 'queued'",
    # What each worker has the code of: [[name, whether it has a lookup], …].
    "ALTER TABLE romulus.workers ADD COLUMN operations text NOT NULL DEFAULT '[]'",
)

# Schema 4: what an unfinished command is called, for people.
NAMED_ATTEMPTS: Final[tuple[LiteralString, ...]] = ("ALTER TABLE romulus.attempts ADD COLUMN name text NOT NULL DEFAULT ''",)
