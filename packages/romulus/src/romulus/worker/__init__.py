"""The worker: claims runs, advances them under its lease, one guarded transition at a time.

- `worker`      registration, lease, start and stop
- `claiming`    looks for work: match, wake, claim
- `loader`      brings a claimed run into memory; `takeup` brings it in line with its record
- `driver`      one run in memory; `deliveries` feed its code, `conclude` decides the transition, `holding` holds it
- `committer`   group commit
- `executor`    runs step bodies; `transactional` those that write through the store
- `lease`, `watchdog`  threads that outlive blocking code
- `maintenance` dead workers and their runs
"""

from .settings import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
