"""Backups of a whole server: pg_basebackup, with the write-ahead log archived beside it, and servers that are put back from them."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.kit import until
from tests.postgres.server import USER, Server, running

ARCHIVED = "SELECT last_archived_wal >= %s FROM pg_stat_archiver"


class PutBack(Server):
    """A server that begins as a backup of another, and answers where that one did."""

    def __init__(self, directory: Path, backup: Path, port: int, **settings: str) -> None:
        super().__init__(directory, **settings)
        self.data, self.port = backup, port

    def recover(self) -> None:
        """Have the next start go on from the archive, to the target that the settings name, and take writes then."""
        (self.data / "recovery.signal").touch()
        if USER:
            shutil.chown(self.data / "recovery.signal", USER)

    def wait_until_it_takes_writes(self) -> None:
        """Return when the recovery has ended: a server answers before."""
        with self.connect() as connection:
            while connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
                pass


class BackedUp:
    """A server that archives its log, and what a person does with its backups."""

    def __init__(self, server: Server, archive: Path) -> None:
        self.server, self.archive = server, archive

    def back_up(self) -> None:
        """Make a base backup."""
        self.server._run("pg_basebackup", "-d", self.server.url(), "-D", str(self.backup), "-c", "fast", "--no-sync")

    @property
    def backup(self) -> Path:
        """Where the base backup is."""
        return self.server.directory / "backup"

    async def archive_all(self) -> None:
        """Wait until the archive has all that was committed so far."""
        with self.server.connect() as connection:
            row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
            await until(lambda: connection.execute(ARCHIVED, row).fetchone() == (True,))

    @contextmanager
    def put_back(self, **target: str) -> Generator[Server]:
        """Kill the server and give one in its place from the base backup; *target*: from the archive too, up to there."""
        self.server.stop(signal.SIGQUIT)
        settings = {"restore_command": f"cp {self.archive}/%f %p", "recovery_target_action": "promote"} | target if target else {}
        server = PutBack(self.server.directory, self.backup, self.server.port, **settings)
        if target:
            server.recover()
        server.start()
        try:
            server.wait_until_it_takes_writes()
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def archiving() -> Generator[BackedUp]:
    """Give a server whose log is archived."""
    with tempfile.TemporaryDirectory(prefix="romulus-pg-") as directory:
        if USER:
            shutil.chown(directory, USER)
        with running(archive_mode="on", archive_command=f"cp %p {directory}/%f") as server:
            yield BackedUp(server, Path(directory))
