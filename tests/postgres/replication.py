"""A primary and its standby: real streaming replication, with pg_basebackup of the server's own release."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.server import USER, Server, running

STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND (%s = '' OR sync_state = %s)"


class Standby(Server):
    """A server that begins as a copy of another and follows it."""

    def __init__(self, directory: Path, primary: Server, **settings: str) -> None:
        super().__init__(directory, **settings)
        self.primary = primary

    def initialise(self) -> None:
        """Copy the primary and be its standby."""
        if USER:
            shutil.chown(self.directory, USER)
        source = f"host=127.0.0.1 port={self.primary.port} user=postgres application_name=standby"
        self._run("pg_basebackup", "-d", source, "-D", str(self.data), "-X", "stream", "-R", "-c", "fast", "--no-sync")
        # A newer pg_basebackup writes options that its server does not know.
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{source}'\n")

    def pause(self) -> None:
        """Receive, but apply nothing more: this standby lags from here on."""
        with self.connect() as connection:
            connection.execute("SELECT pg_wal_replay_pause()")

    def cut_off(self) -> None:
        """Receive nothing more, with the primary still there."""
        with self.connect() as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
            while connection.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() != (0,):
                pass

    def follow(self) -> None:
        """Receive again."""
        with self.connect() as connection:
            connection.execute("ALTER SYSTEM RESET primary_conninfo")
            conninfo = f"host=127.0.0.1 port={self.primary.port} user=postgres application_name=standby"
            connection.execute(f"ALTER SYSTEM SET primary_conninfo = '{conninfo}'")  # type: ignore[arg-type]
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Become the primary, and wait until it takes writes."""
        with self.connect() as connection:
            assert connection.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)


@contextmanager
def replicated(*, synchronous: bool) -> Iterator[tuple[Server, Standby]]:
    """Give a primary and its standby. *synchronous*: commits wait until the standby has flushed them."""
    with running() as primary, tempfile.TemporaryDirectory(prefix="romulus-pg-") as directory:
        Path(directory).chmod(0o755)
        standby = Standby(Path(directory) / "standby", primary)
        standby.directory.mkdir()
        standby.initialise()
        standby.start()
        try:
            with primary.connect() as connection:
                if synchronous:
                    connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
                    connection.execute("SELECT pg_reload_conf()")
                state = "sync" if synchronous else ""
                while connection.execute(STREAMING, (state, state)).fetchone() != (1,):
                    pass
            yield primary, standby
        finally:
            standby.stop()


def url(database: str, *servers: Server) -> str:
    """Return the URL that names a database on whichever of *servers* takes writes."""
    return f"postgresql://postgres@{','.join(f'127.0.0.1:{server.port}' for server in servers)}/{database}"
