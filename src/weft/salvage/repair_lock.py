"""Locks a store's file while it is repaired, and replaces its content safely.

SQLite's own locks keep other processes out: every connection locks bytes at `PENDING` before it
reads or writes. This module locks them itself, because SQLite does not lock a file that it cannot
read. POSIX drops all locks of a process when it closes any descriptor of the file, so everything
here goes through one descriptor.

While the new content is written, the file starts with `MARK` and the name of the backup instead of
SQLite's header. If the repair is interrupted, opening the store fails with `Damaged`, and the next
repair starts from the backup.

https://www.sqlite.org/lockingv3.html, https://www.sqlite.org/howtocorrupt.html (2.2)
"""

import fcntl
import os
import sqlite3
from contextlib import closing
from types import TracebackType
from typing import IO

from weft.errors import StoreError

from .recovered_rows import Bytes

PENDING, LOCKED_BYTES = 0x40000000, 512
PART = 1 << 20
MARK, HEAD = b"weft repairs this file from ", 1024
PRIMARY = 0xFF
IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Descriptor:
    """The bytes of a file, read on demand by slices."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._length = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(self._length)
        return os.pread(self._descriptor, max(0, stop - start), start)


class RepairLock:
    """A context manager that locks a file against all other readers and writers."""

    def __init__(self, path: str) -> None:
        self._name = path
        self.path = os.path.realpath(path)
        self._descriptor = self._copied = -1
        self._backup: str | None = None
        self.data: Bytes = b""
        self.log = b""

    def __enter__(self) -> "RepairLock":
        refuse_in_use(self._name)
        try:
            self._descriptor = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise StoreError(f"the store {self._name!r} cannot be opened: {error}") from None
        try:
            fcntl.lockf(
                self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, LOCKED_BYTES, PENDING, os.SEEK_SET
            )
        except OSError:
            os.close(self._descriptor)
            raise in_use(self._name) from None
        self.data = Descriptor(self._descriptor)
        self._backup = self._unfinished()
        if self._backup is not None:
            self._copied = os.open(self._backup, os.O_RDONLY)
            self.data = Descriptor(self._copied)
        self.log = _read_whole(f"{self._backup or self.path}-wal")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        if self._backup is not None:
            os.close(self._copied)

    def replace(self, fresh: str) -> str:
        """Overwrite the store with the file `fresh`; returns the path of the old file's copy.

        Raises `StoreError` if one of them cannot be written.
        """
        backup = self._backup or _free_name(self.path)
        try:
            if self._backup is None:
                self._copy(backup)
        except OSError as error:
            for name in filter(os.path.exists, (backup, f"{backup}-wal")):
                os.remove(name)
            what = f"the damaged file cannot be kept as {backup!r}, so nothing is changed"
            raise StoreError(f"{what}: {error}") from None
        try:
            self.write(fresh, backup)
        except OSError as error:
            what = f"the store {self._name!r} cannot be written: {error}"
            raise StoreError(
                f"{what}; the old content is in {backup!r}, the recovered one in {fresh!r}"
            ) from None
        return backup

    def _copy(self, backup: str) -> None:
        with open(backup, "xb", opener=_private) as copy:
            for start in range(0, len(self.data), PART):
                copy.write(self.data[start : start + PART])
            _settle(copy)
        if self.log:
            with open(f"{backup}-wal", "xb", opener=_private) as copy:
                copy.write(self.log)
                _settle(copy)

    def write(self, fresh: str, backup: str) -> None:
        """Overwrite the file with the bytes of `fresh`; `backup` is the copy of the old ones."""
        # They belong to the old database file, and would be applied to the new one.
        for name in (f"{self.path}-wal", f"{self.path}-shm"):
            if os.path.exists(name):
                os.remove(name)
        self._put((MARK + os.path.basename(backup).encode()).ljust(HEAD, b"\0"), 0)
        os.fsync(self._descriptor)
        with open(fresh, "rb") as source:
            head = source.read(HEAD)
            length = len(head)
            while part := source.read(PART):
                self._put(part, length)
                length += len(part)
        os.ftruncate(self._descriptor, length)
        os.fsync(self._descriptor)
        self._put(head, 0)
        os.fsync(self._descriptor)

    def _put(self, data: bytes, at: int) -> None:
        while data:
            done = os.pwrite(self._descriptor, data, at)
            data, at = data[done:], at + done

    def _unfinished(self) -> str | None:
        """The path of the backup, if an earlier repair was interrupted."""
        head = self.data[:HEAD]
        if not head.startswith(MARK):
            return None
        backup = os.fsdecode(head.removeprefix(MARK).rstrip(b"\0"))
        path = os.path.join(os.path.dirname(self.path), backup)
        return path if os.path.isfile(path) else None


def refuse_in_use(path: str) -> None:
    """Raise `StoreError` if any connection, of this process too, has the file open.

    If SQLite cannot read the file at all, the check passes.
    """
    with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as db:
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except sqlite3.Error as error:
            if (getattr(error, "sqlite_errorcode", None) or 0) & PRIMARY in IN_USE:
                raise in_use(path) from None


def in_use(path: str) -> StoreError:
    return StoreError(f"the store {path!r} is in use: stop what has it open, then repair it")


def _free_name(path: str) -> str:
    number = 1
    while os.path.exists(f"{path}.damaged-{number}"):
        number += 1
    return f"{path}.damaged-{number}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _settle(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _read_whole(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
