"""External operations: sent once armed, settled by any worker when no definite answer came.

- `sending`   runs a body and says how it ended
- `arming`    a run's own operations: recorded, armed, and what each ending makes of them
- `settling`  the loop that any worker runs over unknown operations: look up, send again, or hold
- `asking`    lookups
- `telling`   reports to the store: what is learned outside of a run's own transitions
- `pacing`    the bound on lookups a second
"""

from .telling import Operations

__all__ = ["Operations"]
