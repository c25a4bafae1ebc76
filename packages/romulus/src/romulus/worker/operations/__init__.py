"""External operations: sent once armed, settled by any worker when no definite answer came.

- `sending`   runs a body and says how it ended
- `arming`    a run's own operations: recorded, armed, and what each ending makes of them
- `settling`  the loop that any worker runs over unknown operations: look up, send again, or hold
- `claimed`   sends under a claim of the worker's own: what is sent again, and what a pool's worker sends
- `queue`     the loop that a pool's worker runs over what is queued in its pools
- `unserved`  holds what no live worker has the code for
- `asking`    lookups
- `telling`   reports to the store: what is learned outside of a run's own transitions
- `pacing`    the bound on lookups a second
"""

from .telling import Operations
from .unserved import Unserved, served_by

__all__ = ["Operations", "Unserved", "served_by"]
