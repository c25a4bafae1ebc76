"""What an apsw exception means for the caller: nothing was written, the commit is unknown, or the file is not ours."""

from __future__ import annotations

import apsw

from romulus.core.errors import CommitUnknown, NotOurFile, StoreError, StoreUnavailable


class FileBusy(StoreUnavailable):
    """Another connection has the file's lock; nothing was written."""


REMEDIES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full: free some space"),
    (apsw.ReadOnlyError, "it cannot be written: make the file and its directory writable"),
    (apsw.CantOpenError, "it cannot be opened: check that its directory exists and may be written"),
    (apsw.PermissionsError, "it may not be used: check its permissions"),
    (apsw.AuthError, "it may not be used: check its permissions"),
    (apsw.NoLFSError, "the file system does not hold files of this size"),
    (apsw.CorruptError, "it is damaged: restore a backup (`PRAGMA integrity_check` tells more)"),
    (apsw.IOError, "reading or writing it failed: check the disk"),
    (apsw.NoMemError, "there is not enough memory"),
    (apsw.InterruptError, "the call was interrupted"),
)
BUSY = (apsw.BusyError, apsw.LockedError)


def unavailable(error: apsw.Error, path: str) -> StoreError | None:
    """Return the error that says what is wrong with the file and what to do; None: the statement itself is at fault."""
    if isinstance(error, BUSY):
        return FileBusy(f"{path} is locked by another process: try again, or end the program that holds it")
    if isinstance(error, apsw.NotADBError):
        return NotOurFile(f"{path} is not a SQLite database; it was left untouched: name another file")
    for kind, remedy in REMEDIES:
        if isinstance(error, kind):
            return StoreUnavailable(f"{path}: {remedy} ({error})")
    return None


def after_commit(error: apsw.Error, path: str) -> StoreError:
    """Return what an error of COMMIT itself means. A full disk wrote no commit mark; a failed flush may have."""
    if isinstance(error, (*BUSY, apsw.FullError, apsw.ConstraintError)):
        return unavailable(error, path) or StoreUnavailable(f"{path}: the commit was refused ({error})")
    return CommitUnknown(f"{path}: the commit may or may not have been applied ({error})")
