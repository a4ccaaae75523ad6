"""A file of somebody else's, taken into one thread.

Hooks and budgets are a handle's own. What a file says passes those of the handle it is given to
like anything that is said there, and is taken whole or refused whole. An archive is no conversation
that is said anew but whole threads with their logs, so it goes into a store (`transfer`).
"""

import gzip
from typing import Any

from msgspec import Struct

from weft.errors import Damaged, ThreadError

from .archive import is_archive
from .handle import Handle
from .importing import Folded, Progress, Remark, Said, Script, land_script, read_script

GZIP = b"\x1f\x8b"


class Imported(Struct, frozen=True, kw_only=True):
    """What an import came to, for one thread.

    `new` counts the commits that the thread did not have; `kept` the lines that are no message,
    by their kind; `renamed` the branches that had to land beside work of the user's own.
    """

    thread: str
    format: str
    messages: int
    new: int
    lines: int = 0
    branches: dict[str, str]
    renamed: dict[str, str]
    kept: dict[str, int]
    remarks: tuple[Remark, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        found["remarks"] = [
            {"what": remark.what, "line": remark.line + 1, "why": remark.why}
            for remark in self.remarks
        ]
        return found


def take_file(
    handle: Handle, data: bytes, format: str | None = None, progress: Progress | None = None
) -> Imported:
    """Take a file into the handle's thread; twice is the same as once."""
    data = unpacked(data)
    if is_archive(data):
        raise ThreadError("an archive brings whole threads along; import it into a store")
    return take_script(handle, read_script(data, format, progress), progress)


def take_script(handle: Handle, script: Script, progress: Progress | None = None) -> Imported:
    """Take what a file says; raises `ThreadError` where it says nothing."""
    said = check_said(script)
    landed = land_script(handle, script, progress)
    return Imported(
        thread=handle.name,
        format=script.format,
        messages=said,
        new=landed.new,
        lines=script.lines,
        branches=dict(landed.branches),
        renamed=dict(landed.renamed),
        kept=dict(script.kept),
        remarks=script.remarks,
    )


def check_said(script: Script) -> int:
    """How many messages a file has; raises `ThreadError` where it has none."""
    said = sum(isinstance(step, Said) for step in script.steps)
    if not said and not any(isinstance(step, Folded) for step in script.steps):
        raise ThreadError("there is no message in this file")
    return said


def unpacked(data: bytes) -> bytes:
    """The file itself, where it came compressed."""
    if not data.startswith(GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise Damaged(f"the file cannot be unpacked: {error}") from None
