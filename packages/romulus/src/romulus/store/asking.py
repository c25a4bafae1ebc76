"""Which live children the end of their generation asks to end, and how: in SQL that both stores speak.

`c` is the row in `children`, `r` the child's run. One that was cancelled before is asked again if a person has retried it since.
"""

from __future__ import annotations

from typing import Final, LiteralString

TO_ASK: Final[LiteralString] = "(c.on_close IN ('cancel', 'terminate', 'stopped') OR (c.on_close = 'closed' AND r.cancel_seq = 0))"
HOW: Final[LiteralString] = "CASE c.on_close WHEN 'closed' THEN 'cancel' WHEN 'stopped' THEN 'terminate' ELSE c.on_close END"
# What `on_close` becomes once the child was asked to end as with its parent: nothing is left to ask of it then, unless it is retried.
ONCE_ASKED: Final[LiteralString] = "CASE on_close WHEN 'terminate' THEN 'stopped' ELSE 'closed' END"
