"""What a start asks of a store, and whether a run that is there already is the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from romulus.core.digests import input_digest
from romulus.core.errors import RunConflict, Undecodable
from romulus.core.machine import RunStatus
from romulus.core.seeds import Seeds
from romulus.core.transition import Existing, NewRun
from romulus.core.values import Vault

SEED_BITS = 128


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A start as the caller means it, checked; times in µs."""

    id: str
    workflow: str
    version: str
    arguments: bytes  # encoded, before the App's codec
    priority: int = 0
    delay: int | None = None
    start_at: int | None = None
    timeout: int | None = None
    attributes: str = "{}"

    def new_run(self, namespace: str, seed_bits: int, vault: Vault) -> NewRun:
        """Return the row to create, its draws and digests keyed by *seed_bits*."""
        seeds = Seeds.first(f"{seed_bits:0{SEED_BITS // 4}x}")
        later = self.delay is not None or self.start_at is not None
        return NewRun(
            namespace, self.id, self.workflow, self.version, RunStatus.SCHEDULED if later else RunStatus.PENDING,
            vault.seal(self.arguments, f"arguments of workflow {self.workflow!r}"),
            input_digest(seeds.in_force(0), self.arguments), seeds.dump(), wake_at=self.start_at or 0, delay=self.delay,
            priority=self.priority, timeout=self.timeout, attributes=self.attributes,
        )  # fmt: skip

    def check_same(self, existing: Existing) -> None:
        """Accept the run that has the ID already if it was started alike; its version is not compared.

        Raises:
            RunConflict: it has another workflow or other arguments.
        """
        first = existing.first
        if first.workflow != self.workflow:
            raise RunConflict(self.id, f"as workflow {first.workflow!r}")
        if input_digest(Seeds.parse(first.seeds).in_force(0), self.arguments) != first.input_digest:
            raise RunConflict(self.id, "with other arguments")


def rekeyed(fork: NewRun, vault: Vault) -> NewRun:
    """Return *fork*, which keeps nothing of the first seed, with its input's digest under its own seed.

    Where the App's codec is not at hand the digest stays: a start of the fork's ID is then a conflict, never another run.
    """
    try:
        plain = vault.open(fork.input, f"arguments of workflow {fork.workflow!r}")
    except Undecodable:
        return fork
    return replace(fork, input_digest=input_digest(Seeds.parse(fork.seeds).in_force(0), plain))


def newest(versions: list[str]) -> str:
    """Return the highest version, numbers compared as numbers; "1", the default, where none is known."""
    return max(versions, key=_natural, default="1")


def _natural(version: str) -> list[tuple[int, int, str]]:
    parts = version.replace("-", ".").split(".")
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]
