"""Looking after a store as a whole: `fsck`, `gc`, `forget`. The clock is read here."""

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
    end_where_readable,
    examine,
    forget_text,
    plan_forget,
    repair,
    sweep,
)
from weft.store import Store, checksum, open_store

DAY = 86_400.0
RETENTION_DAYS = 30.0
SQLITE = "sqlite://"

Target = str | Path | Store


def fsck(target: Target) -> Report:
    """Verify every hash, parent, ref and checksum of a store."""
    with _Opened(target) as store:
        return examine(store, checksum)


def mend(target: Target) -> tuple[list[str], Report]:
    """Save what is whole of a damaged store: what was done, and what is found afterwards.

    A file whose pages are damaged, or whose rows lack others that nothing can bring back, is made
    anew from what can be read of it, and kept beside.
    """
    is_file = isinstance(target, str | Path) and "://" not in str(target).removeprefix(SQLITE)
    done = _remake(target) if is_file and _is_torn(target) else []
    told, report = _mend_rows(target)
    if is_file and not report.clean:  # a store that is open cannot be exchanged under its users
        done += [*told, *_remake(target)]
        told, report = _mend_rows(target)
    return done + told, report


def _mend_rows(target: Target) -> tuple[list[str], Report]:
    """Put right what rows know of each other."""
    with _Opened(target) as store:
        report = examine(store, checksum)
        if report.clean:
            return [], report
        return repair(store, report, time()), examine(store, checksum)


def _is_torn(target: Target) -> bool:
    """Whether SQLite itself cannot read a file to its end, or contradicts it."""
    try:
        return any(flaw.kind == "file" for flaw in fsck(target).flaws)
    except Damaged:
        return True


def _remake(target: Target) -> list[str]:
    """What was saved into a new file, and what was not."""
    from weft.salvage import salvage  # locks files as POSIX does, which is not everywhere

    saved = salvage(str(target).removeprefix(SQLITE), OBJECT_FORMAT, time())
    with _Opened(target) as store:
        rests = [(end.thread, end.rest) for end in saved.ends if end.rest is not None]
        told = [end_where_readable(store, thread, rest, time()) for thread, rest in rests]
    return [*saved.lines(), *(line for line in told if line is not None)]


def gc(target: Target, *, days: float = RETENTION_DAYS, preview: bool = False) -> Swept:
    """Drop what no branch leads to and nothing has named for so many days."""
    if isnan(days):
        raise WrongValue("days", "must be a number, not nan")
    with _Opened(target) as store:
        return sweep(store, time() - days * DAY, preview=preview)


def forget(target: Target, text: str, *, preview: bool = False) -> Erased:
    """Erase a text from everything a store has, for good."""
    if not text.strip():
        raise ThreadError("a blank text cannot be forgotten")
    check_json("text", text)
    with _Opened(target) as store:
        return plan_forget(store, text) if preview else forget_text(store, text, time())


def kept_copies(target: Target) -> list[str]:
    """The files beside a store that repairs have kept: what is forgotten may stand there still."""
    if not isinstance(target, str | Path):
        return []
    path = Path(os.path.realpath(str(target).removeprefix(SQLITE)))
    kept = path.parent.glob(f"{glob.escape(path.name)}.damaged-*") if path.is_file() else ()
    return sorted(map(str, kept))


class _Opened:
    """A store for the length of a `with`; one that was open stays open."""

    def __init__(self, target: Target) -> None:
        self._owns = isinstance(target, str | Path)
        self._store = open_store(cast("str | Path", target)) if self._owns else cast(Store, target)

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        if self._owns:
            self._store.close()
