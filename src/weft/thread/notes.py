"""Remarks beside commits and lines: for people, never for a model.

A note is a commit that touches no line. So it belongs to its branch, is undone, exported and
checked like everything else, and the log shows when it was made.
"""

from weft.errors import NotFound, ThreadError
from weft.history import Draft, Rewrite, read_writers
from weft.ids import Id

from .arguments import check_text
from .handle import Handle
from .info import CommitInfo, read_info
from .resolve import Name, require_commit, resolve_row


def note(handle: Handle, about: Name, text: str) -> CommitInfo:
    """Say something about a commit or a line."""
    if not check_text("text", text).strip():
        raise ThreadError("a note needs words")

    def plan(head: Id | None) -> tuple[Draft, tuple[Id, ...]]:
        target = _about(handle, head, about)
        return Draft("note", Rewrite(), (), text, {"about": target.hex()}), ()

    return handle.land("note", plan)


def notes(handle: Handle, about: Name | None = None) -> list[CommitInfo]:
    """The notes of the branch and of all that was merged into it, oldest first; `about` leaves
    those on one commit or line."""
    head = handle.head()
    wanted = None if about is None else _about(handle, head, about).hex()
    steps = [] if head is None else read_writers(handle.store, handle.name, head, ())
    steps.sort(key=lambda step: step.commit.created)
    found = [read_info(s, handle.count) for s in steps if s.commit.kind == "note"]
    said = [info for info in found if "about" in info.metadata]
    return [info for info in said if wanted in (None, info.metadata["about"])]


def _about(handle: Handle, head: Id | None, name: Name) -> Id:
    """The line that is meant, or the commit where no line is."""
    try:
        row = resolve_row(handle, handle.view(head), name)
    except NotFound:
        return require_commit(handle, name)
    assert row.id is not None
    return row.id
