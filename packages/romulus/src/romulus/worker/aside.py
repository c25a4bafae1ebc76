"""What this worker cannot read, since its code or its codec is another than the caller's: it leaves it to others for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from romulus.core.errors import RomulusError
from romulus.core.text import escaped

REASON_MAX_CHARS: Final = 2_000  # of why it cannot be read
STEP_MAX: Final = 500  # attempts at one step, or operations of one name: with as many the worker leaves all of them to others


def reason_of(error: Exception) -> str:
    """Return why it cannot be read here, for people."""
    words = str(error) if isinstance(error, RomulusError) else f"{type(error).__name__}: {error}"
    return escaped(words[:REASON_MAX_CHARS])


class Aside:
    """What is not claimed, and until when; forgotten with the process."""

    def __init__(self) -> None:
        self._until: dict[int, tuple[int, str]] = {}  # key of the attempt or operation → host's monotonic µs, name

    def put(self, key: int, step: str, until: int) -> bool:
        """Leave it to others until then; return whether it is the only one of its step or name."""
        alone = all(other != step for _, other in self._until.values())
        self._until[key] = until, step
        return alone

    def keys(self, now: int) -> list[int]:
        """Return what is not claimed *now*."""
        self._until = {key: (until, step) for key, (until, step) in self._until.items() if until > now}
        return list(self._until)

    def other_steps(self, steps: Sequence[str]) -> Sequence[str]:
        """Return those of *steps* that are not left to others as a whole."""
        many = {step for step, count in Counter(step for _, step in self._until.values()).items() if count >= STEP_MAX}
        return [step for step in steps if step not in many] if many else steps
