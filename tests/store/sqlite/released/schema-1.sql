PRAGMA application_id = 1383034229;
PRAGMA user_version = 1;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE runs (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL, id TEXT NOT NULL, workflow TEXT NOT NULL, version TEXT NOT NULL, status TEXT NOT NULL,
        generation INTEGER NOT NULL, generation_key INTEGER NOT NULL, position INTEGER NOT NULL, revision INTEGER NOT NULL,
        owner TEXT, fence INTEGER NOT NULL, cancel_seq INTEGER NOT NULL, cancel_reason TEXT NOT NULL,
        last_transition INTEGER NOT NULL, armed TEXT NOT NULL, losses INTEGER NOT NULL,
        wake_at INTEGER, lane INTEGER NOT NULL, queue_at INTEGER, priority INTEGER NOT NULL,
        digest TEXT NOT NULL, excluded TEXT NOT NULL, hold_kind TEXT NOT NULL, hold_reason TEXT NOT NULL,
        deadline INTEGER, attributes TEXT NOT NULL,
        created_at INTEGER NOT NULL, started_at INTEGER, updated_at INTEGER NOT NULL, finished_at INTEGER,
        depth INTEGER NOT NULL) STRICT;
CREATE TABLE generations (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, number INTEGER NOT NULL,
        workflow TEXT NOT NULL, version TEXT NOT NULL, input BLOB NOT NULL, input_digest BLOB NOT NULL, seeds TEXT NOT NULL,
        started_at INTEGER, ended_at INTEGER, result BLOB, failure BLOB, timeout INTEGER, ended_by INTEGER) STRICT;
CREATE TABLE journal (
        generation INTEGER NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL,
        attempt INTEGER NOT NULL, at INTEGER NOT NULL, failed INTEGER NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL,
        info TEXT NOT NULL, fence INTEGER NOT NULL, transition INTEGER NOT NULL) STRICT;
CREATE TABLE attempts (
        generation INTEGER NOT NULL, seq INTEGER NOT NULL, digest TEXT NOT NULL, number INTEGER NOT NULL, failures INTEGER NOT NULL,
        losses INTEGER NOT NULL, due INTEGER NOT NULL, error BLOB NOT NULL, heartbeat BLOB NOT NULL,
        PRIMARY KEY (generation, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE waits (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, seq INTEGER NOT NULL,
        namespace TEXT NOT NULL, name TEXT NOT NULL, correlation_id TEXT NOT NULL, deadline INTEGER,
        shared INTEGER NOT NULL, include_late INTEGER NOT NULL, opened_at INTEGER NOT NULL, event INTEGER) STRICT;
CREATE TABLE events (
        arrival INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, id TEXT NOT NULL,
        name TEXT NOT NULL, correlation_id TEXT NOT NULL, payload BLOB NOT NULL, digest BLOB NOT NULL, received_at INTEGER NOT NULL,
        state TEXT NOT NULL, run INTEGER) STRICT;
CREATE TABLE late (event INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (event, run)) STRICT, WITHOUT ROWID;
CREATE TABLE children (
        child INTEGER PRIMARY KEY, parent INTEGER NOT NULL, generation INTEGER NOT NULL, seq INTEGER NOT NULL,
        on_close TEXT NOT NULL) STRICT;
CREATE TABLE inbox (
        key INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, about TEXT NOT NULL, seq INTEGER NOT NULL,
        failed INTEGER NOT NULL, body BLOB NOT NULL, info TEXT NOT NULL) STRICT;
CREATE TABLE operations (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, namespace TEXT NOT NULL, run INTEGER NOT NULL,
        generation INTEGER NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, arguments BLOB NOT NULL,
        idempotent INTEGER NOT NULL, key_lifetime INTEGER, settle INTEGER NOT NULL, timeout INTEGER NOT NULL, has_lookup INTEGER NOT NULL,
        state TEXT NOT NULL, sends INTEGER NOT NULL, owner TEXT, fence INTEGER NOT NULL, by_run INTEGER NOT NULL,
        first_sent_at INTEGER, may_leave_until INTEGER NOT NULL, due INTEGER, looks INTEGER NOT NULL, cleared INTEGER NOT NULL,
        seen_applied INTEGER NOT NULL, awaited INTEGER NOT NULL, hold_reason TEXT NOT NULL, failed INTEGER NOT NULL, body BLOB NOT NULL,
        created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, ended_at INTEGER) STRICT;
CREATE TABLE operation_notes (
        key INTEGER PRIMARY KEY, operation INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
        state TEXT NOT NULL, detail TEXT NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE pool_attempts (
        key INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, run INTEGER NOT NULL, generation INTEGER NOT NULL,
        seq INTEGER NOT NULL, pool TEXT NOT NULL, step TEXT NOT NULL, digest TEXT NOT NULL, arguments BLOB NOT NULL,
        number INTEGER NOT NULL, timeout INTEGER, heartbeat_timeout INTEGER, heartbeat BLOB NOT NULL, state TEXT NOT NULL,
        owner TEXT, fence INTEGER NOT NULL, lease_until INTEGER, due INTEGER, claimed_at INTEGER, beat_at INTEGER) STRICT;
CREATE TABLE to_match (key INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, correlation_id TEXT NOT NULL) STRICT;
CREATE TABLE wakes (key INTEGER PRIMARY KEY, run INTEGER NOT NULL) STRICT;
CREATE TABLE to_close (key INTEGER PRIMARY KEY, generation INTEGER NOT NULL, seq INTEGER, how TEXT, reason TEXT) STRICT;
CREATE TABLE workers (
        id TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL,
        pid_start TEXT NOT NULL, pid_namespace TEXT NOT NULL, workflows TEXT NOT NULL, pools TEXT NOT NULL, concurrency INTEGER NOT NULL,
        started_at INTEGER NOT NULL, renewed_at INTEGER NOT NULL, lease_until INTEGER NOT NULL,
        dead INTEGER NOT NULL, stopping INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE evidence (
        key INTEGER PRIMARY KEY, run INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL,
        fence INTEGER NOT NULL, detail TEXT NOT NULL) STRICT;
INSERT INTO meta (name, value) VALUES ('incarnation', '00000000000000000000000000000000');
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (1, 'default', 'steps', 'order', '1', 'running', 1, 1, 1, 1, 'old', 1800000000000000, 0, '', 1, '[[1,1,"aa"]]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (2, 'default', 'events', 'order', '1', 'running', 1, 2, 1, 1, 'old', 1800000000000000, 0, '', 2, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (3, 'default', 'parent', 'order', '1', 'running', 1, 3, 0, 1, 'old', 1800000000000000, 0, '', 3, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (4, 'default', 'operates', 'order', '1', 'running', 1, 4, 0, 2, 'old', 1800000000000000, 0, '', 8, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (5, 'default', 'pooled', 'order', '1', 'waiting', 1, 5, 0, 1, NULL, 1800000000000000, 0, '', 5, '', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (6, 'default', 'cancelled', 'order', '1', 'running', 1, 6, 0, 0, 'old', 1800000000000000, 0, '', 0, '[]', 0, NULL, 0, NULL, 0, '', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (7, 'default', 'continued', 'order', '1', 'running', 1, 7, 0, 0, 'old', 1800000000000000, 0, '', 0, '[]', 0, NULL, 0, NULL, 0, '', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (8, 'default', 'held', 'order', '1', 'held', 1, 8, 1, 1, NULL, 1800000000000000, 0, '', 6, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', 'hung', 'stuck', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (9, 'default', 'left', 'order', '1', 'running', 1, 9, 1, 1, 'old', 1800000000000000, 0, '', 7, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (10, 'default', 'untouched', 'order', '1', 'pending', 1, 10, 0, 0, NULL, 0, 0, '', 0, '[]', 0, 1800000000000000, 0, 1800000000000000, 0, '', '', '', '', NULL, '{}', 1800000000000000, NULL, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (11, 'other', 'of the next release', 'order', '1', 'pending', 1, 11, 0, 0, NULL, 0, 0, '', 0, '[]', 0, 1800000000000000, 0, 1800000000000000, 0, '', '', '', '', NULL, '{}', 1800000000000000, NULL, 1800000000000000, NULL, 0);
INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) VALUES (12, 'default', 'parent~1', 'item', '1', 'succeeded', 1, 12, 1, 1, NULL, 1800000000000000, 0, '', 9, '[]', 0, NULL, 0, NULL, 0, '3.11:here', '', '', '', NULL, '{}', 1800000000000000, 1800000000000000, 1800000000000000, 1800000000000000, 1);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (1, 1, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (2, 2, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (3, 3, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (4, 4, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (5, 5, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (6, 6, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (7, 7, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (8, 8, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (9, 9, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (10, 10, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (11, 11, 1, 'order', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, ended_at, result, failure, timeout, ended_by) VALUES (12, 12, 1, 'item', '1', X'7B226E223A317D', X'69696969696969696969696969696969', '[[0,"aa"]]', 1800000000000000, 1800000000000000, X'22646F6E6522', NULL, NULL, NULL);
INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) VALUES (1, 0, 'step', 0, 'charge', 1, 1000, 0, X'226F6B22', X'6464646464646464', '', 1800000000000000, 1);
INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) VALUES (2, 0, 'step', 0, 'charge', 1, 1000, 0, X'226F6B22', X'6464646464646464', '', 1800000000000000, 2);
INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) VALUES (8, 0, 'step', 0, 'charge', 1, 1000, 0, X'226F6B22', X'6464646464646464', '', 1800000000000000, 6);
INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) VALUES (9, 0, 'step', 0, 'charge', 1, 1000, 0, X'226F6B22', X'6464646464646464', '', 1800000000000000, 7);
INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) VALUES (12, 0, 'step', 0, 'charge', 1, 1000, 0, X'226F6B22', X'6464646464646464', '', 1800000000000000, 9);
INSERT INTO attempts (generation, seq, digest, number, failures, losses, due, error, heartbeat) VALUES (1, 1, 'aa', 1, 1, 0, 1800000000000000, X'626F6F6D', X'');
INSERT INTO waits (key, run, seq, namespace, name, correlation_id, deadline, shared, include_late, opened_at, event) VALUES (1, 2, 1, 'default', 'paid', 'o-1', NULL, 0, 0, 1800000000000000, 1);
INSERT INTO waits (key, run, seq, namespace, name, correlation_id, deadline, shared, include_late, opened_at, event) VALUES (2, 2, 2, 'default', 'paid', 'never', 1800000001000000, 0, 0, 1800000000000000, NULL);
INSERT INTO events (arrival, namespace, id, name, correlation_id, payload, digest, received_at, state, run) VALUES (1, 'default', 'e1', 'paid', 'o-1', X'7B7D', X'646967657374206F66207B7D', 1800000000000000, 'matched', 2);
INSERT INTO children (child, parent, generation, seq, on_close) VALUES (12, 3, 3, 1, 'cancel');
INSERT INTO inbox (key, run, about, seq, failed, body, info) VALUES (1, 3, 'child', 1, 0, X'22646F6E6522', '["parent~1","succeeded"]');
INSERT INTO operations (key, id, namespace, run, generation, seq, name, digest, arguments, idempotent, key_lifetime, settle, timeout, has_lookup, state, sends, owner, fence, by_run, first_sent_at, may_leave_until, due, looks, cleared, seen_applied, awaited, hold_reason, failed, body, created_at, updated_at, ended_at) VALUES (1, 'op-1', 'default', 4, 4, 1, 'write', 'd1', X'7B7D', 0, NULL, 0, 1000000, 1, 'unknown', 1, NULL, 1800000000000000, 1, 1800000000000000, 1800000001000000, 1, 0, 0, 0, 1, '', 0, X'', 1800000000000000, 1800000000000000, NULL);
INSERT INTO operation_notes (key, operation, at, kind, who, state, detail, body) VALUES (1, 1, 1800000000000000, 'no answer', 'old', 'unknown', '{}', X'3F');
INSERT INTO pool_attempts (key, namespace, run, generation, seq, pool, step, digest, arguments, number, timeout, heartbeat_timeout, heartbeat, state, owner, fence, lease_until, due, claimed_at, beat_at) VALUES (1, 'default', 5, 5, 1, 'gpu', 'train', 'd1', X'7B226E223A317D', 1, 5000000, 1000000, X'', 'queued', NULL, 7, NULL, 1800000000000000, NULL, NULL);
INSERT INTO wakes (key, run) VALUES (1, 3);
INSERT INTO workers (id, namespace, name, host, boot, pid, pid_start, pid_namespace, workflows, pools, concurrency, started_at, renewed_at, lease_until, dead, stopping) VALUES ('old', 'default', 'test', 'there', 'boot', 1, 'begun', 'space', '[]', '[]', 100, 1800000000000000, 1800000000000000, 15000000, 0, 0);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence (name, seq) VALUES ('runs', 12);
INSERT INTO sqlite_sequence (name, seq) VALUES ('generations', 12);
INSERT INTO sqlite_sequence (name, seq) VALUES ('waits', 2);
INSERT INTO sqlite_sequence (name, seq) VALUES ('operations', 1);
INSERT INTO sqlite_sequence (name, seq) VALUES ('pool_attempts', 1);
INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 1);
INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', 1);
CREATE UNIQUE INDEX runs_id ON runs (namespace, id);
CREATE INDEX runs_due ON runs (namespace, workflow, version, lane, queue_at) WHERE queue_at IS NOT NULL;
CREATE INDEX runs_lossy ON runs (namespace, workflow, version, queue_at) WHERE queue_at IS NOT NULL AND losses > 0;
CREATE INDEX runs_owner ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_held ON runs (namespace, workflow, version) WHERE hold_kind <> '';
CREATE UNIQUE INDEX generations_run ON generations (run, number);
CREATE UNIQUE INDEX journal_position ON journal (generation, position);
CREATE UNIQUE INDEX waits_run ON waits (run, seq);
CREATE INDEX waits_open ON waits (namespace, name, correlation_id, key) WHERE event IS NULL;
CREATE INDEX waits_event ON waits (event) WHERE event IS NOT NULL;
CREATE UNIQUE INDEX events_id ON events (namespace, id);
CREATE INDEX events_unmatched ON events (namespace, name, correlation_id, arrival) WHERE state = 'unmatched';
CREATE INDEX children_generation ON children (generation, seq);
CREATE INDEX inbox_run ON inbox (run, key);
CREATE UNIQUE INDEX operations_id ON operations (id);
CREATE UNIQUE INDEX operations_generation ON operations (generation, seq);
CREATE INDEX operations_owner ON operations (owner) WHERE owner IS NOT NULL;
CREATE INDEX operations_due ON operations (namespace, due) WHERE due IS NOT NULL;
CREATE INDEX operation_notes_operation ON operation_notes (operation, key);
CREATE UNIQUE INDEX pool_attempts_generation ON pool_attempts (generation, seq);
CREATE INDEX pool_attempts_owner ON pool_attempts (owner) WHERE owner IS NOT NULL;
CREATE INDEX pool_attempts_due ON pool_attempts (namespace, pool, due) WHERE due IS NOT NULL;
CREATE INDEX evidence_run ON evidence (run, key);
