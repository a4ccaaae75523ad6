"""Locks a store's file while it is repaired, and replaces its content safely.

SQLite's own locks keep other processes out: every connection locks the bytes at `LOCK_OFFSET`
before it reads or writes. This module locks them itself, because SQLite does not lock a file that
it cannot read. POSIX drops all locks of a process when it closes any descriptor of the file, so
everything here uses one descriptor.

While the new content is written, the file starts with `REPAIR_MARK` and the name of the backup
instead of SQLite's header. If the repair is interrupted, opening the store fails with `Damaged`,
and the next repair starts from the backup.

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

LOCK_OFFSET, LOCK_LENGTH = 0x40000000, 512
CHUNK_BYTES = 1 << 20

REPAIR_MARK = b"weft repairs this file from "
MARK_LENGTH = 1024
"""The bytes at the start of the file that hold the mark and the name of the backup."""

PRIMARY_CODE = 0xFF
"""The bits of an error code that are the same for all its extended codes:
https://www.sqlite.org/rescode.html"""

IN_USE_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


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
    """A context manager that locks a file against all other readers and writers.

    `data` is the content to repair and `wal` its write-ahead log: those of the file, or of the
    backup if an earlier repair was interrupted.
    """

    def __init__(self, path: str) -> None:
        self._name = path
        self.path = os.path.realpath(path)
        self._descriptor = self._backup_descriptor = -1
        self._backup: str | None = None
        self.data: Bytes = b""
        self.wal = b""

    def __enter__(self) -> "RepairLock":
        refuse_in_use(self._name)
        try:
            self._descriptor = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise StoreError(f"the store {self._name!r} cannot be opened: {error}") from None
        try:
            fcntl.lockf(
                self._descriptor,
                fcntl.LOCK_EX | fcntl.LOCK_NB,
                LOCK_LENGTH,
                LOCK_OFFSET,
                os.SEEK_SET,
            )
        except OSError:
            os.close(self._descriptor)
            raise in_use_error(self._name) from None
        self.data = Descriptor(self._descriptor)
        self._backup = self._find_backup()
        if self._backup is not None:
            self._backup_descriptor = os.open(self._backup, os.O_RDONLY)
            self.data = Descriptor(self._backup_descriptor)
        self.wal = _read_if_exists(f"{self._backup or self.path}-wal")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        if self._backup is not None:
            os.close(self._backup_descriptor)

    def replace(self, new_path: str) -> str:
        """Overwrite the store with the file `new_path`; returns the path of the old file's copy.

        Raises `StoreError` if one of them cannot be written.
        """
        backup = self._backup or _free_name(self.path)
        try:
            if self._backup is None:
                self._copy_to(backup)
        except OSError as error:
            for name in filter(os.path.exists, (backup, f"{backup}-wal")):
                os.remove(name)
            what = f"the damaged file cannot be kept as {backup!r}, so nothing is changed"
            raise StoreError(f"{what}: {error}") from None
        try:
            self.write(new_path, backup)
        except OSError as error:
            what = f"the store {self._name!r} cannot be written: {error}"
            raise StoreError(
                f"{what}; the old content is in {backup!r}, the recovered one in {new_path!r}"
            ) from None
        return backup

    def _copy_to(self, backup: str) -> None:
        with open(backup, "xb", opener=_open_private) as copy:
            for start in range(0, len(self.data), CHUNK_BYTES):
                copy.write(self.data[start : start + CHUNK_BYTES])
            _flush_to_disk(copy)
        if self.wal:
            with open(f"{backup}-wal", "xb", opener=_open_private) as copy:
                copy.write(self.wal)
                _flush_to_disk(copy)

    def write(self, new_path: str, backup: str) -> None:
        """Overwrite the file with the bytes of `new_path`; `backup` is the copy of the old ones."""
        # These files belong to the old database, and SQLite would apply them to the new one.
        for name in (f"{self.path}-wal", f"{self.path}-shm"):
            if os.path.exists(name):
                os.remove(name)
        self._write_at(
            (REPAIR_MARK + os.path.basename(backup).encode()).ljust(MARK_LENGTH, b"\0"), 0
        )
        os.fsync(self._descriptor)
        with open(new_path, "rb") as source:
            head = source.read(MARK_LENGTH)
            length = len(head)
            while chunk := source.read(CHUNK_BYTES):
                self._write_at(chunk, length)
                length += len(chunk)
        os.ftruncate(self._descriptor, length)
        os.fsync(self._descriptor)
        self._write_at(head, 0)
        os.fsync(self._descriptor)

    def _write_at(self, data: bytes, offset: int) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            data, offset = data[written:], offset + written

    def _find_backup(self) -> str | None:
        """The path of the backup, if an earlier repair was interrupted."""
        head = self.data[:MARK_LENGTH]
        if not head.startswith(REPAIR_MARK):
            return None
        backup = os.fsdecode(head.removeprefix(REPAIR_MARK).rstrip(b"\0"))
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
            if (getattr(error, "sqlite_errorcode", None) or 0) & PRIMARY_CODE in IN_USE_CODES:
                raise in_use_error(path) from None


def in_use_error(path: str) -> StoreError:
    return StoreError(f"the store {path!r} is in use: stop what has it open, then repair it")


def _free_name(path: str) -> str:
    number = 1
    while os.path.exists(f"{path}.damaged-{number}"):
        number += 1
    return f"{path}.damaged-{number}"


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _flush_to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _read_if_exists(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
