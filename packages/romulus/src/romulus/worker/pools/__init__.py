"""Steps of pools: their attempts are worked by whichever worker serves the pool, not by the run's owner.

- `queueing`  a run's own commands: queued in their pool, and what each ending makes of them
- `working`   the loop that a pool's worker runs: claim, work, keep, report
- `attempt`   one claimed attempt, as the executor sees it
"""

from .working import PoolWorker

__all__ = ["PoolWorker"]
