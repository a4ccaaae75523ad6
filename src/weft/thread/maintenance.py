"""Maintenance of a whole store: `fsck`, `gc`, `forget`. The clock is read here."""

import glob
import os
from math import isnan
from pathlib import Path
from time import time
from typing import cast

from weft.errors import Damaged, ThreadError, WrongValue
from weft.history import (
    OBJECT_FORMAT,
    Erased,
    Report,
    Swept,
    check_json,
    examine,
    forget_text,
    plan_forget,
    repair,
    sweep,
    truncate_damaged_branch,
)
from weft.store import Store, checksum, open_store

from .info import Progress

DAY_SECONDS = 86_400.0
RETENTION_DAYS = 30.0
"""How long `gc` keeps unreachable commits by default."""

SQLITE = "sqlite://"

Target = str | Path | Store


def fsck(target: Target) -> Report:
    """Verify every hash, parent, ref and checksum of a store."""
    with _OpenStore(target) as store:
        return examine(store, checksum)


def repair_store(target: Target) -> tuple[list[str], Report]:
    """Repair a damaged store; returns one line per repair, and the report afterwards.

    If pages of the file are damaged, or rows are lost for good, a new file is written with
    everything that can be read, and the old file is kept beside it.
    """
    # An open store is in use, so its file cannot be replaced.
    address = str(target).removeprefix(SQLITE) if isinstance(target, str | Path) else None
    is_sqlite_file = address is not None and "://" not in address
    file_repairs = _rewrite_file(target) if is_sqlite_file and _is_file_damaged(target) else []
    row_repairs, report = _repair_rows(target)
    if is_sqlite_file and not report.clean:
        file_repairs += [*row_repairs, *_rewrite_file(target)]
        row_repairs, report = _repair_rows(target)
    return file_repairs + row_repairs, report


def _repair_rows(target: Target) -> tuple[list[str], Report]:
    """Repair references between rows."""
    with _OpenStore(target) as store:
        report = examine(store, checksum)
        if report.clean:
            return [], report
        return repair(store, report, time()), examine(store, checksum)


def _is_file_damaged(target: Target) -> bool:
    """Whether SQLite itself finds damage in the file."""
    try:
        return any(flaw.kind == "file" for flaw in fsck(target).flaws)
    except Damaged:
        return True


def _rewrite_file(target: Target) -> list[str]:
    """Write a new file with everything that can be read; returns lines that describe the result."""
    from weft.salvage import salvage  # needs POSIX file locks, which not every system has

    saved = salvage(str(target).removeprefix(SQLITE), OBJECT_FORMAT, time())
    with _OpenStore(target) as store:
        partial_branches = [
            (branch.thread, branch.new_branch)
            for branch in saved.shortened
            if branch.new_branch is not None
        ]
        lines = [
            truncate_damaged_branch(store, thread, branch, time())
            for thread, branch in partial_branches
        ]
    return [*saved.lines(), *(line for line in lines if line is not None)]


def gc(
    target: Target,
    *,
    days: float = RETENTION_DAYS,
    preview: bool = False,
    shrink: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Delete commits that no branch or tag has reached for this many days.

    Other programs can go on writing. `shrink` also gives the free space back to the disk; other
    programs wait while the whole store is rewritten. `progress` is called with how many threads are
    done, and how many there are.
    """
    if isnan(days):
        raise WrongValue("days", "must be a number, not nan")
    since = time() - days * DAY_SECONDS
    with _OpenStore(target) as store:
        return sweep(store, since, preview=preview, shrink=shrink, progress=progress)


def forget(target: Target, text: str, *, preview: bool = False) -> Erased:
    """Erase a text from the whole store, permanently."""
    if not text.strip():
        raise ThreadError("a blank text cannot be forgotten")
    check_json("text", text)
    with _OpenStore(target) as store:
        return plan_forget(store, text) if preview else forget_text(store, text, time())


def kept_copies(target: Target) -> list[str]:
    """The old files that repairs kept beside a store; they may still contain forgotten texts."""
    if not isinstance(target, str | Path):
        return []
    path = Path(os.path.realpath(str(target).removeprefix(SQLITE)))
    copies = path.parent.glob(f"{glob.escape(path.name)}.damaged-*") if path.is_file() else ()
    return sorted(map(str, copies))


class _OpenStore:
    """A store for the length of a `with`; closes it only if it was not open before."""

    def __init__(self, target: Target) -> None:
        self._is_own = isinstance(target, str | Path)
        self._store = (
            open_store(cast("str | Path", target)) if self._is_own else cast(Store, target)
        )

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        if self._is_own:
            self._store.close()
