"""Locks on names between programs that share a SQLite file.

A name is one byte of a lock file beside the store, locked with POSIX record locks. The system
releases them when a program ends, also by `kill -9`, and a child process does not inherit them. All
locks of a program on a file end when it closes any descriptor of that file, so there is one
descriptor for all, and it is not the store's own file, which SQLite locks in the same way.

https://pubs.opengroup.org/onlinepubs/9699919799/functions/fcntl.html
"""

import os
from collections.abc import Callable
from hashlib import sha256
from threading import Lock

from weft.errors import StoreError

LOCK_SUFFIX = ".lock"

_guard = Lock()
_files: dict[str, int] = {}
"""The descriptors of the lock files that have locks of this program, by path."""
_held: set[tuple[str, int]] = set()


def try_lock_name(path: str, name: str) -> Callable[[], None] | None:
    """Lock a name of the store at this path; `None` if another program, or this one, holds it."""
    import fcntl  # POSIX only; nothing else of the store needs it

    file = path + LOCK_SUFFIX
    # The highest bit stays free: offsets are signed.
    offset = int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 2
    with _guard:
        if (file, offset) in _held:
            return None
        try:
            if file not in _files:
                _files[file] = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(_files[file], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            _close_unused(file)
            return None
        except OSError as error:
            _close_unused(file)
            raise StoreError(f"{file!r} cannot be locked: {error.strerror or error}") from None
        _held.add((file, offset))

    def release() -> None:
        with _guard:
            if (file, offset) in _held:
                _held.discard((file, offset))
                fcntl.lockf(_files[file], fcntl.LOCK_UN, 1, offset)
                _close_unused(file)

    return release


def _close_unused(file: str) -> None:
    """Close the descriptor of a lock file that has no locks of this program."""
    if file in _files and not any(held == file for held, _ in _held):
        os.close(_files.pop(file))
