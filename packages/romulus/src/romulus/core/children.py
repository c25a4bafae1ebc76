"""Children as the code of their parent knows them: their IDs, and outcomes that nobody need await."""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final, cast

from .commands import ChildCall, Command
from .record import Kind
from .seeds import derive

if TYPE_CHECKING:
    from .instance import Instance

DEPTH_MAX: Final = 50  # parents above a run
RESERVED: Final = "~"  # in run IDs that the engine makes: of children and of forks; a chosen ID has it only within its parent's
_ROOT_CHARS = 150  # of the parent's ID that a child's begins with
_RANDOM_CHARS = 16


class ChildState:
    """The outcome of a child started for a handle. It stays, and any number of tasks may await it."""

    __slots__ = ("_error", "_instance", "_result", "_waiting", "done", "seq")

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.seq = 0  # of the command that starts it
        self.done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._waiting: list[Future[None]] = []

    def set_result(self, value: Any) -> None:
        """Take the child's result."""
        self._result = value
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Take how the child ended otherwise."""
        self._error = error
        self._settle()

    async def outcome(self) -> Any:
        """Return the child's result once it is there; raise where it did not succeed."""
        if not self.done:
            waiting = self._instance.new_future()
            self._waiting.append(waiting)
            await waiting
        if self._error is not None:
            raise self._error
        return self._result

    def _settle(self) -> None:
        self.done = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def outcome_command(started: Command, run_id: str) -> Command:
    """Return what stays open once a child has been started for a handle: the same command, awaiting its outcome."""
    call = cast("ChildCall", started.detail)
    call.run_id = run_id
    return Command(started.seq, Kind.CHILD, started.name, started.digest, call, call.outcome)


def child_id(parent_id: str, seed: bytes, seq: int) -> str:
    """Return an ID that no other child of this root gets, in the namespace that no chosen ID is in."""
    root = parent_id.partition(RESERVED)[0][:_ROOT_CHARS]
    return f"{root}{RESERVED}{derive(seed, 'child', seq).hex()[:_RANDOM_CHARS]}"


def may_choose(parent_id: str, run_id: str) -> bool:
    """Return whether code of *parent_id* may give a child the ID *run_id*, which has a "~": its own, and then what no made ID has there."""
    rest = run_id.removeprefix(parent_id)
    return run_id.startswith(parent_id) and rest != "" and not rest[0].isalnum() and RESERVED not in rest


def chosen_before(run_id: str, chosen: str) -> list[str]:
    """Return the IDs that *chosen*, which the code made of *run_id*, had in the runs that this one was forked from."""
    found, rest = list[str](), chosen.removeprefix(run_id)
    root, _, number = run_id.rpartition(RESERVED)
    while rest != chosen and root and number.isdecimal():
        found.append(root + rest)
        root, _, number = root.rpartition(RESERVED)
    return found


def is_made(run_id: str) -> bool:
    """Return whether the engine made *run_id*: what follows its last "~" is a hexadecimal number, or the number of a fork."""
    root, reserved, number = run_id.rpartition(RESERVED)
    return bool(root and reserved) and number.isalnum()
