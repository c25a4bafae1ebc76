"""The PostgreSQL server that the reader of a page has: its programs on PATH, and the variables that lead to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.server import USER, free_port, programs

PROGRAMS = ("initdb", "pg_ctl", "pg_basebackup", "psql")
SETTINGS = "fsync = off\nunix_socket_directories = ''\n"
# A server refuses to run as root, and a page does not say who its reader is.
AS_ANOTHER = """#!{python}
import os, pwd, sys
user = pwd.getpwnam({user!r})
os.setgroups([])
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


@contextmanager
def readers_server() -> Generator[tuple[Path, dict[str, str]]]:
    """Give an empty directory in which reader and server may write, and the variables of a server that `pg_ctl` has started."""
    with tempfile.TemporaryDirectory(prefix="romulus-page-") as made:
        place = Path(made)
        for directory in (place, place / "work", place / "server"):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o777)
        (place / "shared").write_text("umask 0\n", encoding="utf-8")
        variables = {
            "PATH": f"{_programs(place / 'bin')}{os.pathsep}{os.environ['PATH']}", "BASH_ENV": str(place / "shared"),
            "PGDATA": f"{place}/server/data", "PGHOST": "127.0.0.1", "PGPORT": str(free_port()), "PGUSER": "postgres",
            "PGDATABASE": "postgres",
        }  # fmt: skip
        _run("initdb -U postgres --auth=trust --locale=C --encoding=utf8 --no-sync", variables)
        with (place / "server" / "data" / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(SETTINGS)
        _run("pg_ctl start -l $PGDATA/log", variables)
        try:
            yield place / "work", variables
        finally:
            _run("pg_ctl stop -m immediate", variables)


def _programs(directory: Path) -> Path:
    """Return where the server's programs are; for root a directory in which they run as another user."""
    if USER is None:
        return programs()
    directory.mkdir()
    for name in PROGRAMS:
        made = directory / name
        made.write_text(AS_ANOTHER.format(python=sys.executable, user=USER, program=str(programs() / name)), encoding="utf-8")
        made.chmod(0o755)
    return directory


def _run(command: str, variables: Mapping[str, str]) -> None:
    env = {**os.environ, **variables}
    done = subprocess.run(command, shell=True, cwd="/", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
