"""What `patched` answers: once a generation and name."""

from __future__ import annotations

from collections.abc import Iterable


class Patches:
    """Recorded answers first; else False on a replay (the old code ran there) and True at the live edge, to be recorded."""

    __slots__ = ("_answers", "_new")

    def __init__(self) -> None:
        self._answers: dict[str, bool] = {}
        self._new: list[tuple[str, bool]] = []

    def recorded(self, names: Iterable[str]) -> None:
        """Take over recorded answers."""
        for name in names:
            self._answers.setdefault(name, True)

    def known(self, name: str) -> bool | None:
        """Return the answer given or recorded before."""
        return self._answers.get(name)

    def answer(self, name: str, answer: bool) -> bool:
        """Give *answer* from now on; True is to be recorded."""
        self._answers[name] = answer
        if answer:
            self._new.append((name, answer))
        return answer

    def take(self) -> list[tuple[str, bool]]:
        """Return what is to be recorded, once."""
        if not self._new:
            return []
        new, self._new = self._new, []
        return new
