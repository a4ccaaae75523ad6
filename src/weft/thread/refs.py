"""The verbs that move names: branch, switch, reset, tags, undo, redo."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from weft.errors import NotFound, ThreadError, WrongValue
from weft.history import REDO, TAG, UNDO, is_switch, plan_redo, plan_undo, read_operations
from weft.ids import Id
from weft.store import Landing, Operation

from .handle import Handle
from .info import CommitInfo
from .preview import Preview, preview_state
from .resolve import At, check_name, resolve_commit

NAMED = {
    "branch": "branch {ref!r}",
    "delete": "delete branch {ref!r}",
    "switch": "switch to {ref!r}",
    "reset": "reset {ref!r}",
    "clear": "clear {ref!r}",
    "tag": "tag {ref!r}",
    "untag": "delete tag {ref!r}",
}
"""How operations on names are described."""

TURN_VERBS = ("append", "note")
"""The operations that a turn ends with: an answer, or a report of what it used."""


class Undone(Struct, frozen=True):
    """What an undo took back, or a redo brought back.

    `verb` and `ref` are those of the operation, `commit` is the commit that it brought or named,
    `head` is where the caller's branch points afterwards. For a whole turn `verb` is `turn`,
    `commit` is the user's message that began it, and `steps` is how many operations it had.
    """

    verb: str
    ref: str
    commit: CommitInfo | None
    head: CommitInfo | None
    steps: int = 1

    def __str__(self) -> str:
        if self.verb in NAMED or self.commit is None:
            return NAMED.get(self.verb, self.verb + " {ref!r}").format(ref=self.ref)
        return f"{self.verb} {self.commit.id[:12]} {self.commit.message or ''}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "verb": self.verb,
            "ref": self.ref,
            "commit": None if self.commit is None else self.commit.id,
            "head": None if self.head is None else self.head.id,
            "steps": self.steps,
        }


def branch(handle: Handle, name: str, at: At = None) -> CommitInfo:
    """A new branch at this commit; the handle stays where it is."""
    check_name(name)
    target = resolve_commit(handle, at)
    if target is None:
        raise ThreadError("an empty thread cannot be branched")
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        if handle.store.read_ref(handle.name, name) is not None:
            raise ThreadError(f"branch {name!r} is there already")
        _move(handle, "branch", name, None, target)
    return handle.info(target)


def delete_branch(handle: Handle, name: str) -> CommitInfo:
    """Forget a branch's name; its commits stay, and undo brings it back."""
    if name == handle.branch:
        raise ThreadError(f"branch {name!r} is where this handle stands; switch first")
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        head = handle.store.read_ref(handle.name, name)
        if head is None:
            raise NotFound("branch", name)
        _move(handle, "delete", name, head, None)
    return handle.info(head)


def switch(handle: Handle, name: str) -> CommitInfo | None:
    """Stand on another branch, here and for handles opened later."""
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        head = handle.store.read_ref(handle.name, name)
        record = handle.store.read_thread(handle.name)
        known = {handle.branch, "" if record is None else record.head}
        if head is None and name not in known:
            raise NotFound("branch", name)
        if name != handle.branch:
            _land(handle, "switch", name, head, head, was=handle.branch)
            handle.branch = name
    return None if head is None else handle.info(head)


def reset(handle: Handle, at: At, *, preview: bool = False) -> CommitInfo | Preview:
    """Let the branch point at another commit; what it leaves stays reachable by `undo`."""
    if at is None:
        raise WrongValue("at", "must name a commit: `clear()` empties the branch")
    with handle.lock, handle.store.transaction():
        target = resolve_commit(handle, at)
        if target is None:
            raise ThreadError("an empty thread cannot be reset")
        if preview:
            return preview_state(handle, "reset", handle.view(target))
        if target != handle.head():
            _move(handle, "reset", handle.branch, handle.head(), target)
        return handle.info(target)


def clear(handle: Handle, *, preview: bool = False) -> CommitInfo | Preview | None:
    """Let the branch point at nothing; the result is the commit that it pointed at."""
    with handle.lock, handle.store.transaction():
        head = handle.head()
        if preview:
            return preview_state(handle, "clear", handle.view(None))
        if head is None:
            return None
        _move(handle, "clear", handle.branch, head, None)
        return handle.info(head)


def fork(handle: Handle, name: str, at: At = None) -> Handle:
    """A handle of its own on a new branch, with the hooks, the budget and the listeners of this."""
    check_name(name)
    if resolve_commit(handle, at) is not None:
        branch(handle, name, at)
    elif handle.store.read_ref(handle.name, name) is not None:
        raise ThreadError(f"branch {name!r} is there already")
    return handle.twin(name)


def tag(handle: Handle, name: str, at: At = None) -> CommitInfo:
    """Give a commit a name that does not move."""
    check_name(name, "tag")
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        target = resolve_commit(handle, at)
        if target is None:
            raise ThreadError("an empty thread cannot be tagged")
        if handle.store.read_ref(handle.name, TAG + name) is not None:
            raise ThreadError(f"tag {name!r} is there already")
        _move(handle, "tag", TAG + name, None, target)
    return handle.info(target)


def untag(handle: Handle, name: str) -> CommitInfo:
    """Forget a tag; its commit stays."""
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        target = handle.store.read_ref(handle.name, TAG + name)
        if target is None:
            raise NotFound("tag", name)
        _move(handle, "untag", TAG + name, target, None)
    return handle.info(target)


def undo(handle: Handle, *, turn: bool = False) -> Undone:
    """Take back the last operation on the handle's branch that still stands, or the last turn."""
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        return _undo_turn(handle) if turn else _undo_once(handle)


def redo(handle: Handle, *, turn: bool = False) -> Undone:
    """Take back the last undo on the handle's branch, if nothing else was done there since."""
    with handle.lock, handle.restoring_place(), handle.store.transaction():
        return _redo_turn(handle) if turn else _redo_once(handle)


def _undo_once(handle: Handle) -> Undone:
    log = read_operations(handle.store, handle.name)
    record = handle.store.read_thread(handle.name)
    kept = [record.head] if record is not None and record.head != handle.branch else []
    target = plan_undo(log, handle.branch, handle.is_own, kept)
    if target is None:
        raise ThreadError(f"there is nothing to undo on branch {handle.branch!r}")
    _turn_back(handle, UNDO, target)
    return _told(handle, target)


def _redo_once(handle: Handle) -> Undone:
    log = read_operations(handle.store, handle.name)
    undone = plan_redo(log, handle.branch, handle.is_own)
    if undone is None:
        raise ThreadError(f"there is nothing to redo on branch {handle.branch!r}")
    _turn_back(handle, REDO, undone)
    log = read_operations(handle.store, handle.name)
    again = plan_undo(log, handle.branch, handle.is_own)
    return _told(handle, again or undone)


def _undo_turn(handle: Handle) -> Undone:
    """Undo until the last message that the user wrote is taken back.

    A pin, an edit or a compaction that was done last is no part of a turn, and is taken back alone.
    Where there is no message of a user, the caller's transaction takes back what was undone here.
    """
    branch, steps = handle.branch, 0
    while True:
        try:
            undone = _undo_once(handle)
        except ThreadError:
            raise ThreadError(f"there is no turn to undo on branch {branch!r}") from None
        steps += 1
        if steps == 1 and undone.verb not in TURN_VERBS:
            return undone
        if _begins_turn(undone):
            return Undone("turn", branch, undone.commit, undone.head, steps)


def _redo_turn(handle: Handle) -> Undone:
    """Redo one operation, and those behind it up to where the next turn begins."""
    first = undone = _redo_once(handle)
    steps = 1
    while (ahead := plan_redo(_log(handle), handle.branch, handle.is_own)) is not None:
        commit = None if ahead.old is None else handle.info(ahead.old)
        if is_switch(ahead) or (commit is not None and _is_question(commit)):
            break
        undone = _redo_once(handle)
        steps += 1
    return Undone("turn", handle.branch, first.commit, undone.head, steps)


def _begins_turn(undone: Undone) -> bool:
    return undone.verb == "append" and undone.commit is not None and _is_question(undone.commit)


def _is_question(commit: CommitInfo) -> bool:
    """Whether a commit appends what a user wrote, not what a tool answered."""
    messages = commit.messages
    return commit.kind == "append" and bool(messages) and messages[0].role == "user"


def _log(handle: Handle) -> Iterator[Operation]:
    return read_operations(handle.store, handle.name)


def _turn_back(handle: Handle, verb: str, line: Operation) -> None:
    """Move a name, or the handle, back to where it was before this line of the log."""
    if is_switch(line):
        assert line.was is not None
        head = handle.store.read_ref(handle.name, line.was)
        _land(handle, verb, line.was, head, head, was=line.ref)
        handle.branch = line.was
    else:
        _move(handle, verb, line.ref, line.new, line.old)


def _told(handle: Handle, operation: Operation) -> Undone:
    """What an operation was, and where the branch is now."""
    touched = operation.new or operation.old
    head = handle.head()
    return Undone(
        operation.verb,
        operation.ref.removeprefix(TAG),
        None if touched is None else handle.info(touched),
        None if head is None else handle.info(head),
    )


def _move(handle: Handle, verb: str, ref: str, old: Id | None, new: Id | None) -> None:
    """Move a name; the log keeps which branch it was done from."""
    _land(handle, verb, ref, old, new, was=None if ref == handle.branch else handle.branch)


def _land(
    handle: Handle,
    verb: str,
    ref: str,
    old: Id | None,
    new: Id | None,
    was: str | None,
) -> None:
    landing = Landing(verb=verb, ref=ref, old=old, new=new, created=handle.clock(), was=was)
    handle.store.land(handle.name, landing)
    if was is not None:
        handle.note_own()
