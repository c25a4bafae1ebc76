"""The bounds and durations a worker keeps to, in one place."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000  # µs


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Every duration is µs of the worker's monotonic clock unless it says store time."""

    lease: int = 15 * SECOND  # how long a claim holds without renewal; at least 2 s
    stall_limit: int = 60 * SECOND  # an event loop blocked longer is no longer renewed for
    stall_report: int = 5 * SECOND  # a loop blocked longer is reported with its stack
    activation_limit: int = 2 * SECOND  # one activation of workflow code
    activation_landing: int = 1 * SECOND  # how long the watchdog's throw may take to land
    grace: int = 10 * SECOND  # how long attempts may go on after SIGTERM
    poll: int = 1 * SECOND  # how often due work is looked for when nothing else wakes the worker or the run
    sweep: int = 700_000  # how often dead workers are looked for, so that a run goes on within a second of its lease's end
    stray: int = 5 * SECOND  # how often runs are looked for that are this worker's and that nobody in it holds
    runs_max: int = 2_000  # runs in memory with work in progress
    record_bytes_max: int = 256 * 1024 * 1024  # journal bytes of runs in memory with work in progress
    backlog_max: int = 5_000  # transitions waiting for the writer before claiming pauses
    claim_max: int = 500  # runs claimed at once
    turn_entries_max: int = 200  # journal entries in one transition
    turn_children_max: int = 1_000  # children started by one transition
    turn_pool_max: int = 1_000  # attempts queued in pools by one transition
    turn_intents_max: int = 1_000  # operations recorded by one transition beyond those it arms
    beat_every: int = 1 * SECOND  # heartbeats of attempts in pools are stored at most this often
    unread_pause: int = 15 * SECOND  # an attempt in a pool that this worker could not read is left to others for so long
    settling_max: int = 50  # unknown operations that are looked up or sent again at once
    lookups_per_second_max: int = 500
    code_patience: int = 60 * SECOND  # store time that an unsettled operation is due without any worker that has its code: then it is held
    turn_bytes_max: int = 1024 * 1024  # bytes of entries in one transition
    cancel_grace: int = 3_600 * SECOND  # store time that code may take to clean up after a cancel
    event_retention: int = 30 * 86_400 * SECOND  # store time that events are kept, matched ones longer
    batch_max: int = 500  # transitions in one commit
    batch_bytes_max: int = 4 * 1024 * 1024
    cache_max: int = 500  # runs in memory, those in progress included, up to which parked ones stay
    memory_back_after: int = 1_000  # runs that leave memory before what they had is given back to the system
    memory_back_busy_max: int = 100  # runs in progress: with more of them it is needed again at once
    history_chunk: int = 2_000  # entries read and replayed before the loop breathes
    history_warn: int = 25_000  # entries of one generation
    history_max: int = 100_000  # entries of one generation: held at this
    alone_after: int = 3  # claims lost without progress before a run is claimed alone
    alone_pause: int = 1 * SECOND  # before such a claim, doubled by each further loss
    alone_patience: int = 30 * SECOND  # a worker that was not idle for so long claims such a run beside others
    poison_after: int = 5  # claims lost without progress before a run is held

    @property
    def margin(self) -> int:
        """Return how long before the lease's end nothing new is armed."""
        return self.lease // 5
