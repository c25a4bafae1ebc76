"""Development mode: a second interpreter with another hash seed replays each run as it goes and compares what the code asks for.

The worker's side: `observer` tells the second interpreter what was committed and holds the run that differs, `watched` notes what an
instance was given and asked for, `process` keeps the other process alive. The other side: `interpreter` is its program, `shadowed`
replays one run. `words` is what they exchange.

Only the worker decides anything: a second interpreter that is slow, broken or dead costs the comparison and nothing else.
"""

from __future__ import annotations

from .observer import Shadow
from .words import Target

__all__ = ["Shadow", "Target"]
